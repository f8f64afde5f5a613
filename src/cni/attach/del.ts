// DEL: check readiness, delete the endpoint, release the addresses, remove the interface. What does not exist is not an
// error. A step that fails is reported at the end, after the other steps, so that a repeated DEL has less to do.
import { hasErrno, removeLink } from "../../kernel/index.ts";
import { callOptions, type CniContext } from "../context.ts";
import { foreignDataplane, isForeign } from "../request/dataplane-options.ts";
import {
  changedTooOften,
  DELETE_ATTEMPTS,
  deleteEndpoint,
  deleteEndpointIf,
  deletionOf,
  getEndpoint,
  isOfNewerContainer,
} from "./endpoint.ts";
import { CniError } from "../error.ts";
import { requireReady } from "./readiness.ts";
import type { ForeignDataplane } from "./grpc-dataplane.ts";
import { CALICO_IPAM, ipamDel } from "../ipam/delegation.ts";
import { releaseAddresses } from "../ipam/pool-addresses.ts";

export async function del(context: CniContext): Promise<void> {
  const { conf, identity, store, mark } = context;
  await requireReady(context);
  mark("gates open");
  const refusal = await deleteForeignInterface(context);
  const canTransact = store.transact !== undefined && conf.ipam.type === CALICO_IPAM;
  // A pod whose endpoint cannot be deleted keeps its addresses and its interface.
  if (!canTransact && identity.orchestrator === "k8s") await deleteOwnEndpoint(context);
  // At the same time: the kernel needs 1 to 2 ms to remove the interface, about as long as the datastore needs.
  const outcomes = await Promise.allSettled([
    canTransact ? releaseInTransaction(context) : releaseInSteps(context),
    removeInterface(context),
  ]);
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  if (refusal !== undefined) throw refusal;
}

/** The endpoint of a pod has been deleted before. */
async function releaseInSteps(context: CniContext): Promise<void> {
  const endpoint = context.identity.orchestrator === "k8s" ? Promise.resolve() : deleteOwnEndpoint(context);
  const outcomes = await Promise.allSettled([endpoint, ipamDel(context)]);
  context.mark("address released");
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
}

/** Deletes the endpoint and releases the addresses in one transaction. */
async function releaseInTransaction(context: CniContext): Promise<void> {
  const { identity, store } = context;
  const call = callOptions(context);
  for (let attempt = 0; attempt < DELETE_ATTEMPTS; attempt++) {
    const found = await getEndpoint(store, identity, call);
    const endpoint = found === undefined || isOfNewerContainer(found, identity) ? undefined : found;
    const outcome = await releaseAddresses(context, endpoint === undefined ? [] : [deletionOf(endpoint)]);
    context.mark("address released");
    if (endpoint === undefined || outcome === "written") return;
    // The container had no addresses, or they were released without a transaction.
    if (outcome === "notWritten" && (await deleteEndpoint(store, endpoint, call))) return;
  }
  throw changedTooOften();
}

/** The endpoint of a newer container of the pod stays. */
const deleteOwnEndpoint = (context: CniContext): Promise<void> =>
  deleteEndpointIf(
    context.store,
    context.identity,
    (found) => !isOfNewerContainer(found, context.identity),
    callOptions(context),
  );

/**
 * A dataplane of another vendor comes first: its server may refuse, and then the pod keeps its endpoint and addresses.
 * A container may hold addresses although its dataplane is unknown: they are released, and the error is returned.
 */
async function deleteForeignInterface(context: CniContext): Promise<CniError | undefined> {
  let foreign: ForeignDataplane | undefined;
  try {
    foreign = foreignDataplane(context.conf);
  } catch (error) {
    if (context.identity.orchestrator === "cni" && error instanceof CniError) return error;
    throw error;
  }
  if (foreign === undefined) return undefined;
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
    // The host's end and its routes are removed with it.
    await (context.removeLink ?? removeLink)(request.ifName, netns);
    context.mark("wire gone");
  } catch (error) {
    // The namespace was deleted before, and the interface with it.
    if (!hasErrno(error, "ENOENT", "EINVAL")) throw error;
  }
}
