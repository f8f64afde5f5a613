// Deletes everything that belongs to a node with the node: endpoints and their addresses, blocks, tunnel addresses, BGP
// peers, configuration. Missing entries and kinds that the datastore does not store are skipped, so that an interrupted
// deletion can be repeated.
import { type IpAddress } from "../../lib/ip/ip.ts";
import {
  ignoreUnreadable,
  type KindName,
  readBgpPeer,
  readHostEndpoint,
  readNode,
  readWorkloadAddresses,
  type Resource,
  type StoredKey,
  tunnelAddresses,
  workloadNameMatches,
} from "../../model/index.ts";
import { DatastoreError, NotFound, Unsupported } from "../errors.ts";
import type { KindHooks, HookContext } from "./kind-hooks.ts";

export const nodeHooks: KindHooks = {
  beforeCreate: async (_node, context) => {
    try {
      await context.ensureInitialized();
    } catch (error) {
      // The node must be created in any case; the next write of any program tries again.
      if (!(error instanceof DatastoreError)) throw error;
      context.log.warn("cluster information could not be written", { error });
    }
  },
  runsBeforeDeleteIfMissing: true,
  beforeDelete: async ({ key, value }, context) => {
    if (context.store.name === "kubernetes") return undefined; // Kubernetes deletes the pods, kube-controllers the rest
    const { name } = key;
    const endpoints = await entriesOf(
      "WorkloadEndpoint",
      (endpoint) => workloadNameMatches(endpoint.metadata.name, { node: name }),
      context,
    );
    const addresses = [
      ...endpoints.flatMap(({ value: endpoint }) => readWorkloadAddresses(endpoint, ignoreUnreadable)),
      ...tunnelsOf(value),
    ];
    if (context.addresses !== undefined) {
      if (addresses.length > 0) await context.addresses.releaseAddresses(addresses, context.signal);
      for (const { key: endpoint } of endpoints) await remove(endpoint, context);
      await context.addresses.removeHost(name, context.signal);
    } else {
      for (const { key: endpoint } of endpoints) await remove(endpoint, context);
      await remove({ type: "ipamHost", host: name }, context);
    }
    const own = [
      ...(await entriesOf("BGPPeer", (peer) => readBgpPeer(peer, ignoreUnreadable).node === name, context)),
      ...(await entriesOf("HostEndpoint", (host) => readHostEndpoint(host, ignoreUnreadable).node === name, context)),
    ];
    for (const item of own) await remove(item.key, context);
    for (const kind of ["FelixConfiguration", "BGPConfiguration"] as const)
      await remove({ type: "resource", kind, name: `node.${name}` }, context);
    return undefined;
  },
};

async function entriesOf(kind: KindName, isOwned: (resource: Resource) => boolean, { store, signal }: HookContext) {
  const { items } = await store.list({ type: "resource", kind }, { ...(signal && { signal }) });
  return items.filter((item) => isOwned(item.value));
}

async function remove(key: StoredKey, { store, signal }: HookContext): Promise<void> {
  try {
    await store.delete(key, { ...(signal && { signal }) });
  } catch (error) {
    if (!(error instanceof NotFound || error instanceof Unsupported)) throw error;
  }
}

function tunnelsOf(node: Resource): IpAddress[] {
  return tunnelAddresses(readNode(node, ignoreUnreadable)).map(({ address }) => address);
}
