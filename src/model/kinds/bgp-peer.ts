// Defines the kind BGPPeer: the nodes that have a BGP session, and their peers.
import { ipVersion, tryParseAddress } from "../../lib/ip/ip.ts";
import { isPeerAddress } from "../validation/formats.ts";
import {
  address,
  asNumber,
  choice,
  duration,
  field,
  flag,
  integer,
  list,
  matching,
  object,
  pointer,
  secretKeyRef,
  selector,
  subdomain,
} from "./fields.ts";
import { defineKind, type ResourceFor, type Stored } from "./kind.ts";

const spec = object({
  node: field(subdomain()),
  nodeSelector: field(selector(1024)),
  peerIP: field(matching(isPeerAddress, "want an address with or without port: 10.0.0.1, 10.0.0.1:179, [fd00::1]:179")),
  asNumber: field(asNumber()),
  localASNumber: pointer(asNumber()),
  peerSelector: field(selector(1024)),
  keepOriginalNextHop: field(flag()),
  nextHopMode: pointer(choice("Auto", "Self", "Keep")),
  password: pointer(object({ secretKeyRef: pointer(secretKeyRef()) })),
  sourceAddress: field(choice("UseNodeIP", "None")),
  maxRestartTime: pointer(duration()),
  keepaliveTime: pointer(duration()),
  numAllowedLocalASNumbers: pointer(integer()),
  ttlSecurity: pointer(integer(0, 255)),
  reachableBy: field(address()),
  filters: field(list(subdomain())),
  localWorkloadSelector: field(selector(1024)),
  reversePeering: pointer(choice("Auto", "Manual")),
});
export type BGPPeerResource = ResourceFor<"BGPPeer", typeof spec>;

/** Pairs of fields that exclude each other. */
const EXCLUSIVE: readonly (readonly [keyof Stored<typeof spec>, keyof Stored<typeof spec>])[] = [
  ["node", "nodeSelector"],
  ["peerIP", "peerSelector"],
  ["asNumber", "peerSelector"],
  ["peerIP", "localWorkloadSelector"],
  ["peerSelector", "localWorkloadSelector"],
  ["keepOriginalNextHop", "nextHopMode"],
];

export default defineKind({
  kind: "BGPPeer",
  description: "A BGP session between nodes of the cluster, or between nodes and other routers.",
  spec,
  rules: (peer, { report }) => {
    for (const [name, other] of EXCLUSIVE)
      if (peer[name] !== undefined && peer[other] !== undefined)
        report([name], peer[name], `cannot be combined with ${other}`);
    if (peer.localWorkloadSelector !== undefined && peer.asNumber === undefined)
      report(["asNumber"], undefined, "is required with localWorkloadSelector");
    if (peer.reachableBy === undefined) return;
    const gateway = tryParseAddress(peer.reachableBy);
    const remote =
      tryParseAddress(/^\[?(.*?)\]?(?::\d+)?$/.exec(peer.peerIP ?? "")?.[1] ?? "") ??
      tryParseAddress(peer.peerIP ?? "");
    if (peer.peerIP === undefined) report(["reachableBy"], peer.reachableBy, "requires peerIP");
    else if (gateway !== undefined && remote !== undefined && ipVersion(gateway) !== ipVersion(remote))
      report(["reachableBy"], peer.reachableBy, `want an IPv${ipVersion(remote)} address, like peerIP`);
  },
  printerColumns: [
    { name: "Node Selector", type: "string", jsonPath: ".spec.nodeSelector" },
    { name: "Node", type: "string", jsonPath: ".spec.node" },
    { name: "Local ASN", type: "string", jsonPath: ".spec.localASNumber" },
    { name: "Peer Selector", type: "string", jsonPath: ".spec.peerSelector" },
    { name: "Peer IP", type: "string", jsonPath: ".spec.peerIP" },
    { name: "Peer ASN", type: "string", jsonPath: ".spec.asNumber" },
  ],
});
