// DEL: the endpoint, the addresses, the interface. Whatever is not there is fine; what fails is said at the end, after
// everything else was tried, so that a repeated DEL has less to do.
import { hasErrno } from "../kernel/index.ts";
import type { CniContext } from "./context.ts";
import { removePodInterface } from "./datapath.ts";
import { deleteEndpoint, getEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { behindGate, gatedStore } from "./gated-store.ts";
import { checkDatastoreReady } from "./gates.ts";
import { ipamDel } from "./ipam-delegation.ts";

const DELETE_ATTEMPTS = 6;

export async function del(context: CniContext): Promise<void> {
  const { mark } = context;
  const ready = checkDatastoreReady(context.store).then(() => mark("gates open"));
  ready.catch(() => {}); // everything below waits for it
  if (context.identity.orchestrator === "k8s") {
    // An endpoint that cannot be deleted keeps its addresses and its wire.
    const deleted = deletePodEndpoint({ ...context, store: gatedStore(context.store, ready) }).then(() =>
      mark("endpoint deleted"),
    );
    const removed = ready.then(() => deleted).then(() => removeInterface(context));
    const released = behindGate(context, Promise.all([ready, deleted]))
      .then((gated) => ipamDel(gated))
      .then(() => mark("address released"));
    await all([ready, deleted, removed, released]);
    return;
  }
  const deleted = deleteContainerEndpoint({ ...context, store: gatedStore(context.store, ready) }).then(() =>
    mark("endpoint deleted"),
  );
  const removed = ready.then(() => removeInterface(context));
  const released = behindGate(context, ready)
    .then((gated) => ipamDel(gated))
    .then(() => mark("address released"));
  await all([ready, deleted, removed, released]);
}

/** Waits for every step, then throws what the first of the failed ones threw. */
async function all(steps: readonly Promise<unknown>[]): Promise<void> {
  for (const outcome of await Promise.allSettled(steps)) if (outcome.status === "rejected") throw outcome.reason;
}

/** The endpoint may belong to a newer container of the pod by now: then it stays. */
async function deletePodEndpoint({ store, identity }: Pick<CniContext, "store" | "identity">): Promise<void> {
  for (let attempt = 0; attempt < DELETE_ATTEMPTS; attempt++) {
    const found = await getEndpoint(store, identity);
    if (found === undefined) return;
    const holder = found.endpoint.spec.containerID ?? "";
    if (holder !== "" && holder !== identity.containerId) return;
    if (await deleteEndpoint(store, found)) return;
  }
  throw new CniError(INTERNAL, "error deleting endpoint: endpoint was modified before it could be deleted");
}

async function deleteContainerEndpoint({ store, identity }: Pick<CniContext, "store" | "identity">): Promise<void> {
  for (let attempt = 0; attempt < DELETE_ATTEMPTS; attempt++) {
    const found = await getEndpoint(store, identity);
    if (found === undefined || (await deleteEndpoint(store, found))) return;
  }
}

async function removeInterface(context: CniContext): Promise<void> {
  const { request } = context;
  if (request.netns === "") return;
  try {
    using netns = context.openNetns();
    await removePodInterface(netns, request.ifName);
    context.mark("wire gone");
  } catch (error) {
    // The namespace went before us, and the interface with it.
    if (!hasErrno(error, "ENOENT", "EINVAL")) throw error;
  }
}
