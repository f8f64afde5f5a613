// Emits the VXLAN tunnel endpoint (VTEP) of each node: tunnel address, MAC address, and the node's own address.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { felixSettingValue, type Node } from "../../model/index.ts";
import type { DataplaneMessage } from "../messages.ts";

export type VtepUpdate = Extract<DataplaneMessage, { readonly type: "vtepUpdate" }>;

export interface VtepListener {
  onVtepUpdate(vtep: VtepUpdate): void;
  onVtepRemove(node: string): void;
}

interface Family {
  address?: string;
  tunnel?: string;
  mac?: string;
}
type NodeState = Readonly<Record<IpVersion, Family>>;

/** Host settings that contain the IP and MAC addresses of the VXLAN device. */
const TUNNEL_SETTINGS = {
  IPv4VXLANTunnelAddr: { version: 4, field: "tunnel" },
  VXLANTunnelMACAddr: { version: 4, field: "mac" },
  IPv6VXLANTunnelAddr: { version: 6, field: "tunnel" },
  VXLANTunnelMACAddrV6: { version: 6, field: "mac" },
} as const;
const isTunnelSetting = (name: string): name is keyof typeof TUNNEL_SETTINGS => Object.hasOwn(TUNNEL_SETTINGS, name);

export class VtepResolver {
  readonly #nodes = new Map<string, NodeState>();
  readonly #emitted = new Map<string, VtepUpdate>();
  readonly #listener: VtepListener;

  constructor(listener: VtepListener) {
    this.#listener = listener;
  }

  setNode(name: string, node: Node | undefined): void {
    const state = this.#state(name);
    set(state[4], "address", node?.networks[4]?.address);
    set(state[6], "address", node?.networks[6]?.address);
    this.#emit(name, state);
  }

  setHostConfig(host: string, name: string, value: string | undefined): void {
    if (!isTunnelSetting(name)) return;
    const { version, field } = TUNNEL_SETTINGS[name];
    const state = this.#state(host);
    // An invalid value is ignored. Otherwise it would cause errors on other hosts when they write neighbour entries.
    const parsed = felixSettingValue(name, value);
    set(state[version], field, parsed === "" ? undefined : parsed);
    this.#emit(host, state);
  }

  #state(name: string): NodeState {
    let state = this.#nodes.get(name);
    if (state === undefined) this.#nodes.set(name, (state = { 4: {}, 6: {} }));
    return state;
  }

  #emit(node: string, state: NodeState): void {
    const isComplete = (version: IpVersion) =>
      state[version].address !== undefined && state[version].tunnel !== undefined;
    if (!isComplete(4) && !isComplete(6)) {
      if (this.#emitted.delete(node)) this.#listener.onVtepRemove(node);
      if (Object.keys({ ...state[4], ...state[6] }).length === 0) this.#nodes.delete(node);
      return;
    }
    const of = (version: IpVersion) => ({
      mac: isComplete(version) ? (state[version].mac ?? defaultMac(node, version)) : "",
      tunnel: isComplete(version) ? (state[version].tunnel ?? "") : "",
      address: isComplete(version) ? (state[version].address ?? "") : "",
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
    if (Bun.deepEquals(this.#emitted.get(node), vtep, true)) return;
    this.#emitted.set(node, vtep);
    this.#listener.onVtepUpdate(vtep);
  }
}

/** Returns the MAC address of a node without a configured one. All hosts, Calico's included, compute the same address. */
export function defaultMac(node: string, version: IpVersion): string {
  const name = version === 4 ? node : `${node}-v6`;
  const hash = new Bun.CryptoHasher("sha1").update(name).digest();
  return ["66", ...Array.from(hash.subarray(0, 5), (byte) => byte.toString(16).padStart(2, "0"))].join(":");
}

function set(family: Family, field: keyof Family, value: string | undefined): void {
  if (value === undefined) delete family[field];
  else family[field] = value;
}
