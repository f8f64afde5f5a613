// Implements DEL: checks readiness, deletes the endpoint, releases the addresses, and removes the interface. It is not an error
// if one of them does not exist. A failed step is reported after the other steps were tried, so that a repeated DEL has less
// to do.
import { hasErrno, removeLink } from "../../kernel/index.ts";
import { callOptions, type CniContext } from "../context.ts";
import { grpcDataplane, usesGrpcDataplane } from "../request/dataplane-options.ts";
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
import type { GrpcDataplane } from "./grpc-dataplane.ts";
import { CALICO_IPAM, ipamPluginDel } from "../ipam/ipam-plugin.ts";
import { releasePoolAddresses } from "../ipam/pool-addresses.ts";

export async function del(context: CniContext): Promise<void> {
  const { conf, identity, store, mark } = context;
  await requireReady(context);
  mark("gates open");
  const configError = await deleteInterfaceByGrpc(context);
  const canTransact = store.transact !== undefined && conf.ipam.type === CALICO_IPAM;
  // A pod whose endpoint cannot be deleted keeps its addresses and its interface.
  if (!canTransact && identity.orchestrator === "k8s") await deleteOwnEndpoint(context);
  // Concurrently, because the kernel needs 1 to 2 ms to remove the interface, about as long as the datastore.
  const outcomes = await Promise.allSettled([
    canTransact ? releaseInTransaction(context) : releaseInSteps(context),
    removeInterface(context),
  ]);
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  if (configError !== undefined) throw configError;
}

/** The caller has already deleted the endpoint if the workload is a pod. */
async function releaseInSteps(context: CniContext): Promise<void> {
  const endpoint = context.identity.orchestrator === "k8s" ? Promise.resolve() : deleteOwnEndpoint(context);
  const outcomes = await Promise.allSettled([endpoint, ipamPluginDel(context)]);
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
    const outcome = await releasePoolAddresses(context, endpoint === undefined ? [] : [deletionOf(endpoint)]);
    context.mark("address released");
    if (endpoint === undefined || outcome === "written") return;
    // The container had no addresses, or they were released without a transaction.
    if (outcome === "notWritten" && (await deleteEndpoint(store, endpoint, call))) return;
  }
  throw changedTooOften();
}

/** Deletes the endpoint unless it belongs to a newer container of the pod. */
const deleteOwnEndpoint = (context: CniContext): Promise<void> =>
  deleteEndpointIf(
    context.store,
    context.identity,
    (found) => !isOfNewerContainer(found, context.identity),
    callOptions(context),
  );

/**
 * Called first, because the server may reject the request; the pod then keeps its endpoint and addresses.
 * @returns the error for an invalid dataplane type of a container, whose addresses must still be released
 */
async function deleteInterfaceByGrpc(context: CniContext): Promise<CniError | undefined> {
  let grpc: GrpcDataplane | undefined;
  try {
    grpc = grpcDataplane(context.conf);
  } catch (error) {
    if (context.identity.orchestrator === "cni" && error instanceof CniError) return error;
    throw error;
  }
  if (grpc === undefined) return undefined;
  const { deleteGrpcInterface } = await import("./grpc-dataplane.ts");
  await deleteGrpcInterface(grpc, context.request);
  context.mark("interface removed");
  return undefined;
}

async function removeInterface(context: CniContext): Promise<void> {
  const { request } = context;
  if (request.netns === "" || usesGrpcDataplane(context.conf)) return;
  try {
    using netns = context.openNetns();
    // The host's end and its routes are removed with it.
    await (context.removeLink ?? removeLink)(request.ifName, netns);
    context.mark("interface removed");
  } catch (error) {
    // The namespace was deleted before, and the interface with it.
    if (!hasErrno(error, "ENOENT", "EINVAL")) throw error;
  }
}
