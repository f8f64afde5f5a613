// Reads BGPPeers.
import { type IpAddress, ipVersion, tryParseAddress } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Labels, Resource } from "../resource.ts";
import type { ParsedSelector } from "../selector/selector.ts";
import {
  addressIn,
  asNumberIn,
  integerIn,
  nodeSelectorIn,
  type NodeSelector,
  type SecretRef,
  secondsIn,
  secretIn,
  selectorIn,
} from "./fields.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export interface BgpPeer {
  readonly name: string;
  /** The nodes that have the session: those that the selector matches, else the node with this name, else all nodes. */
  readonly nodeSelector: NodeSelector | undefined;
  readonly node: string | undefined;
  readonly peerAddress: { readonly address: IpAddress; readonly port: number | undefined } | undefined;
  readonly peerSelector: NodeSelector | undefined;
  /** Selects local workloads as peers. */
  readonly localWorkloadSelector: ParsedSelector | undefined;
  readonly asNumber: number | undefined;
  readonly localAsNumber: number | undefined;
  readonly keepOriginalNextHop: boolean;
  readonly nextHopMode: "Auto" | "Self" | "Keep" | undefined;
  readonly password: SecretRef | undefined;
  readonly sourceAddress: "UseNodeIP" | "None";
  readonly restartSeconds: number | undefined;
  readonly keepaliveSeconds: number | undefined;
  readonly numAllowedLocalAs: number | undefined;
  readonly ttlSecurity: number | undefined;
  readonly reachableBy: IpAddress | undefined;
  readonly filters: readonly string[];
  readonly isReversed: boolean;
}

/** RFC 4724: the restart time has 12 bits. */
export const MAX_RESTART_SECONDS = 4095;
const MAX_HOLD_SECONDS = 65535;
const NO_NODE: NodeSelector = { text: "", matches: () => false };

/** If the selector or the name of the node cannot be read, the peer applies to no node. */
export function readBgpPeer(resource: Resource, onUnreadable: OnUnreadable): BgpPeer {
  const read = fieldReader(onUnreadable);
  const json = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined);
  const spec = json ?? new JsonReader({}, "spec");
  const peerAddress = read(() => peerAddressIn(spec), undefined);
  const noNode = { node: undefined, nodeSelector: NO_NODE };
  const nodes = read(() => ({ node: spec.filled("node"), nodeSelector: nodeSelectorIn(spec, "nodeSelector") }), noNode);
  return {
    name: resource.metadata.name,
    ...(json === undefined ? noNode : nodes),
    peerAddress,
    peerSelector: read(() => nodeSelectorIn(spec, "peerSelector"), NO_NODE),
    localWorkloadSelector: read(() => selectorIn(spec, "localWorkloadSelector"), undefined),
    asNumber: read(() => asNumberIn(spec, "asNumber"), undefined),
    localAsNumber: read(() => asNumberIn(spec, "localASNumber"), undefined),
    keepOriginalNextHop: read(() => spec.flag("keepOriginalNextHop"), undefined) ?? false,
    nextHopMode: read(() => nextHopModeIn(spec), undefined),
    password: read(() => secretIn(spec, "password"), undefined),
    sourceAddress: read(() => spec.text("sourceAddress"), undefined) === "None" ? "None" : "UseNodeIP",
    restartSeconds: read(() => secondsIn(spec, "maxRestartTime", 0, MAX_RESTART_SECONDS), undefined),
    keepaliveSeconds: read(() => secondsIn(spec, "keepaliveTime", 1, MAX_HOLD_SECONDS), undefined),
    numAllowedLocalAs: read(() => integerIn(spec, "numAllowedLocalASNumbers", 0, 255), undefined),
    ttlSecurity: read(() => integerIn(spec, "ttlSecurity", 0, 255), undefined) || undefined,
    reachableBy: read(() => reachableByIn(spec, peerAddress?.address), undefined),
    filters: read(() => spec.texts("filters"), []),
    isReversed: read(() => spec.text("reversePeering"), undefined) !== "Manual",
  };
}

/** True if the BGPPeer applies to this node. */
export function isForNode(
  { node, nodeSelector }: Pick<BgpPeer, "node" | "nodeSelector">,
  { name, labels }: { readonly name: string; readonly labels: Labels },
): boolean {
  if (nodeSelector !== undefined) return nodeSelector.matches(labels);
  return node === undefined || node === name;
}

/** Parses `10.0.0.1`, `10.0.0.1:179`, `fd00::1` or `[fd00::1]:179`. */
function peerAddressIn(spec: JsonReader): BgpPeer["peerAddress"] {
  const text = spec.filled("peerIP");
  if (text === undefined) return undefined;
  const bare = tryParseAddress(text);
  if (bare !== undefined) return { address: bare, port: undefined };
  const [, v6, v4, portText] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const address = tryParseAddress(v6 ?? v4 ?? "");
  const port = Number(portText);
  if (address === undefined || port < 1 || port > 65535)
    return spec.fail("peerIP", "an address, with or without :port");
  return { address, port };
}

function reachableByIn(spec: JsonReader, peer: IpAddress | undefined): IpAddress | undefined {
  const gateway = addressIn(spec, "reachableBy");
  if (gateway === undefined || peer === undefined || ipVersion(gateway) === ipVersion(peer)) return gateway;
  return spec.fail("reachableBy", `an IPv${ipVersion(peer)} address, like peerIP`);
}

function nextHopModeIn(spec: JsonReader): BgpPeer["nextHopMode"] {
  const mode = spec.filled("nextHopMode");
  switch (mode) {
    case undefined:
    case "Auto":
    case "Self":
    case "Keep":
      return mode;
    default:
      return spec.fail("nextHopMode", "Auto, Self or Keep");
  }
}
