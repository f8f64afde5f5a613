// DEL: the endpoint, the addresses, the interface. Whatever is not there is fine; what fails is said at the end, after
// everything else was tried, so that a repeated DEL has less to do.
import type { Also } from "../ipam/index.ts";
import { hasErrno, removeLink } from "../kernel/index.ts";
import type { CniContext } from "./context.ts";
import { foreignDataplane, isForeign } from "./dataplane-options.ts";
import {
  changedTooOften,
  DELETE_ATTEMPTS,
  deleteEndpoint,
  deleteEndpointIf,
  deletionOf,
  getEndpoint,
  isAnothers,
  type StoredEndpoint,
} from "./endpoint.ts";
import { CniError } from "./error.ts";
import type { ForeignDataplane } from "./grpc-dataplane.ts";
import { behindGate, gatedStore, onGatedStore } from "./gated-store.ts";
import { checkDatastoreReady } from "./gates.ts";
import { gateSignal } from "./open-context.ts";
import { CALICO_IPAM, ipamDel } from "./ipam-delegation.ts";
import { legacyHandle, onStore, releaseAddresses } from "./ipam-plugin.ts";

export async function del(context: CniContext): Promise<void> {
  const refusal = await removeForeignWire(context);
  if (context.store.together !== undefined && context.conf.ipam.type === CALICO_IPAM) await delTogether(context);
  else await delInSteps(context);
  if (refusal !== undefined) throw refusal;
}

/** Endpoint and addresses in one write. */
async function delTogether(context: CniContext): Promise<void> {
  const { memory, mark, identity } = context;
  const begun = Promise.withResolvers<void>();
  const legacy = legacyHandle(identity);
  const released = memory.recall.attempt(
    context.store,
    async (store) => {
      const here = onStore(context, store);
      const ready = checkDatastoreReady(store, gateSignal(context)).then(() => mark("gates open"));
      ready.then(() => begun.resolve()).catch(() => {});
      await giveBack(here, ready);
    },
    { isAbsent: (key) => key.type === "ipamHandle" && key.handleId === legacy },
  );
  released.catch(begun.reject);
  begun.promise.catch(() => {}); // awaited below
  const removed = begun.promise.then(() => removeInterface(context));
  await all([released.then(() => mark("address released")), removed]);
}

async function giveBack(context: CniContext, ready: Promise<void>): Promise<void> {
  const { store } = context;
  for (let attempt = 0; attempt < DELETE_ATTEMPTS; attempt++) {
    const found = ownEndpoint(context);
    found.catch(() => {}); // awaited with the gates
    const also: Also = async () => {
      await ready;
      const endpoint = await found;
      return endpoint === undefined ? [] : [deletionOf(endpoint)];
    };
    const others = await releaseAddresses(onGatedStore(context, ready), undefined, also);
    await ready;
    const endpoint = await found;
    if (endpoint === undefined || others === "written") return;
    if (others === "left" && (await deleteEndpoint(store, endpoint))) return;
  }
  throw changedTooOften();
}

/** The endpoint this container has; a newer container's stays. */
async function ownEndpoint({ store, identity }: CniContext): Promise<StoredEndpoint | undefined> {
  const found = await getEndpoint(store, identity);
  return found === undefined || isAnothers(found, identity) ? undefined : found;
}

async function delInSteps(context: CniContext): Promise<void> {
  const { mark } = context;
  const ready = checkDatastoreReady(context.store, gateSignal(context)).then(() => mark("gates open"));
  ready.catch(() => {}); // everything below waits for it
  const { identity } = context;
  const deleted = deleteEndpointIf(
    gatedStore(context.store, ready),
    identity,
    (found) => !isAnothers(found, identity),
  ).then(() => mark("endpoint deleted"));
  // A pod's endpoint that cannot be deleted keeps its addresses and its wire.
  const first = identity.orchestrator === "k8s" ? ready.then(() => deleted) : ready;
  const removed = first.then(() => removeInterface(context));
  const released = behindGate(context, first)
    .then((gated) => ipamDel(gated))
    .then(() => mark("address released"));
  const steps = [deleted, removed, released];
  for (const step of steps) step.catch(() => {}); // behind a gate that stays shut none does anything
  await ready;
  await all(steps);
}

/** Waits for every step, then throws what the first of the failed ones threw. */
async function all(steps: readonly Promise<unknown>[]): Promise<void> {
  for (const outcome of await Promise.allSettled(steps)) if (outcome.status === "rejected") throw outcome.reason;
}

/**
 * First of all, unlike our own: a server may refuse, and then the pod still has its addresses. Without a server there is no
 * wire; what a container took before it was refused goes, and the refusal is said at the end.
 */
async function removeForeignWire(context: CniContext): Promise<CniError | undefined> {
  let foreign: ForeignDataplane | undefined;
  try {
    foreign = foreignDataplane(context.conf);
  } catch (error) {
    if (context.identity.orchestrator === "cni" && error instanceof CniError) return error;
    throw error;
  }
  if (foreign === undefined) return undefined;
  await checkDatastoreReady(context.store, gateSignal(context));
  const { deleteForeignWire } = await import("./grpc-dataplane.ts");
  await deleteForeignWire(foreign, context.request);
  context.mark("wire gone");
  return undefined;
}

async function removeInterface(context: CniContext): Promise<void> {
  const { request } = context;
  if (request.netns === "" || isForeign(context.conf)) return;
  try {
    using netns = context.openNetns();
    // With it go the host's end and routes. Whatever is gone already is fine.
    await (context.removeLink ?? removeLink)(request.ifName, netns);
    context.mark("wire gone");
  } catch (error) {
    // The namespace went before us, and the interface with it.
    if (!hasErrno(error, "ENOENT", "EINVAL")) throw error;
  }
}
