// Warns at startup about BGP peers that are in the network of another interface than the Node's address. BIRD connects from
// the Node's address, and such a peer expects the address of the other interface.
import { BgpCollector, isPeerOf, otherNetworks, plan } from "../../bgp/index.ts";
import type { Client } from "../../datastore/index.ts";
import { ipVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { type HostInterface, isGlobalUnicast, isSkipped } from "./host-interfaces.ts";

/** Kinds from which a node's sessions are planned. */
const KINDS = ["Node", "BGPConfiguration", "BGPPeer"] as const;

export async function warnOfPeersAtOtherInterfaces(options: {
  readonly client: Client;
  readonly node: string;
  readonly interfaces: readonly HostInterface[];
  readonly log: Logger;
}): Promise<void> {
  const { client, node, log } = options;
  const interfaces = options.interfaces
    .filter(({ name }) => !isSkipped(name))
    .map(({ name, networks }) => ({ name, addresses: networks.filter(({ address }) => isGlobalUnicast(address)) }))
    .filter(({ addresses }) => addresses.length > 0);
  if (interfaces.length < 2) return;
  try {
    // Most clusters have no BGPPeer; this avoids listing their nodes.
    if ((await client.list({ kind: "BGPPeer" })).items.length === 0) return;
    const collector = new BgpCollector();
    for (const kind of KINDS)
      for (const resource of (await client.list({ kind })).items)
        collector.setResource(resource.metadata.name, resource, kind);
    const state = collector.stateFor(node);
    const own = state.nodes.get(node);
    if (own === undefined) return;
    const peers = plan(state, node, { hasSecret: () => true }).peers.filter(
      ({ kind, sourceAddress }) => sourceAddress !== null && (kind === "node" || kind === "global"),
    );
    for (const other of otherNetworks(own.networks, interfaces))
      for (const { neighbor, because } of peers.filter((peer) => isPeerOf(other, peer.neighbor))) {
        const version = ipVersion(other.address);
        log.warn(
          "BGP peer is in the network of an interface that does not have the node's address, so it does not expect sessions from that address; set the autodetection method, or sourceAddress: None in the BGPPeer",
          {
            peer: neighbor,
            because,
            nodeAddress: own.networks[version]?.address,
            interface: other.interface,
            interfaceAddress: other.address,
            set: `${version === 4 ? "IP" : "IP6"}_AUTODETECTION_METHOD=interface=${other.interface}`,
          },
        );
      }
  } catch (error) {
    log.debug("could not compare the BGP peers with the host's interfaces", { error: describeError(error) });
  }
}
