// The VXLAN tunnel endpoint of each node: its tunnel address, the MAC that goes with it, and the node's own address.
import type { IpVersion } from "../../lib/ip.ts";
import { isAddress, isMac, type Resource } from "../../model/index.ts";
import type { DataplaneMessage } from "../messages.ts";
import { addressOf, type NodeSpec, specOf } from "../resources.ts";

export type VtepUpdate = Extract<DataplaneMessage, { readonly type: "vtepUpdate" }>;

export interface VtepListener {
  onVtep(vtep: VtepUpdate): void;
  onVtepGone(node: string): void;
}

interface Family {
  address?: string;
  tunnel?: string;
  mac?: string;
}
type NodeState = Readonly<Record<IpVersion, Family>>;

/** Names of the host's settings that hold tunnel addresses. */
const SETTINGS: ReadonlyMap<string, { readonly version: IpVersion; readonly field: "tunnel" | "mac" }> = new Map([
  ["IPv4VXLANTunnelAddr", { version: 4, field: "tunnel" }],
  ["VXLANTunnelMACAddr", { version: 4, field: "mac" }],
  ["IPv6VXLANTunnelAddr", { version: 6, field: "tunnel" }],
  ["VXLANTunnelMACAddrV6", { version: 6, field: "mac" }],
] as const);

export class VtepResolver {
  readonly #nodes = new Map<string, NodeState>();
  readonly #said = new Map<string, VtepUpdate>();
  readonly #listener: VtepListener;

  constructor(listener: VtepListener) {
    this.#listener = listener;
  }

  setNode(name: string, resource: Resource | undefined): void {
    const bgp = resource === undefined ? undefined : specOf<NodeSpec>(resource).bgp;
    const state = this.#state(name);
    set(state[4], "address", addressOf(bgp?.ipv4Address));
    set(state[6], "address", addressOf(bgp?.ipv6Address));
    this.#say(name, state);
  }

  setHostConfig(host: string, name: string, value: string | undefined): void {
    const setting = SETTINGS.get(name);
    if (setting === undefined) return;
    const state = this.#state(host);
    // Settings are any text; one host's must not be what all others fail to write.
    const isGood = setting.field === "mac" ? isMac : (text: string) => isAddress(text, setting.version);
    set(state[setting.version], setting.field, value !== undefined && isGood(value) ? value : undefined);
    this.#say(host, state);
  }

  #state(name: string): NodeState {
    let state = this.#nodes.get(name);
    if (state === undefined) this.#nodes.set(name, (state = { 4: {}, 6: {} }));
    return state;
  }

  #say(node: string, state: NodeState): void {
    const known = (version: IpVersion) => state[version].address !== undefined && state[version].tunnel !== undefined;
    if (!known(4) && !known(6)) {
      if (this.#said.delete(node)) this.#listener.onVtepGone(node);
      if (Object.keys({ ...state[4], ...state[6] }).length === 0) this.#nodes.delete(node);
      return;
    }
    const of = (version: IpVersion) => ({
      mac: known(version) ? (state[version].mac ?? defaultMac(node, version)) : "",
      tunnel: known(version) ? (state[version].tunnel ?? "") : "",
      address: known(version) ? (state[version].address ?? "") : "",
    });
    const v4 = of(4);
    const v6 = of(6);
    const vtep: VtepUpdate = {
      type: "vtepUpdate",
      node,
      mac: v4.mac,
      ipv4Addr: v4.tunnel,
      parentDeviceIp: v4.address,
      macV6: v6.mac,
      ipv6Addr: v6.tunnel,
      parentDeviceIpv6: v6.address,
    };
    if (Bun.deepEquals(this.#said.get(node), vtep, true)) return;
    this.#said.set(node, vtep);
    this.#listener.onVtep(vtep);
  }
}

/** The MAC every host computes alike for a node that has none set. */
export function defaultMac(node: string, version: IpVersion): string {
  const name = version === 4 ? node : `${node}-v6`;
  const hash = new Bun.CryptoHasher("sha1").update(name).digest();
  return ["66", ...Array.from(hash.subarray(0, 5), (byte) => byte.toString(16).padStart(2, "0"))].join(":");
}

function set(family: Family, field: keyof Family, value: string | undefined): void {
  if (value === undefined) delete family[field];
  else family[field] = value;
}
