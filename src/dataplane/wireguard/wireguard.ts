// Encrypts traffic between nodes for one family: configures peers, and a routing table that precedes the main table.
//
//   rule 99  not marked as encrypted ─► table 1   10.65.4.0/26 dev wireguard.cali    a node with WireGuard
//                                                 throw 10.65.7.0/26                 this node, or a node without WireGuard
//
// No packet is sent through the device before other nodes can know the key of this node: the datastore must contain it. Device
// and peers are written first, then routes, then the rule that activates the table.
import type { DataplaneReport } from "../../calc/index.ts";
import type { Rule, Rules } from "../../kernel/index.ts";
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import type { RouteTable } from "../routes/route-table.ts";
import { RoutingRules } from "../routes/routing-rules.ts";
import type { PeerRegistry } from "./peer-registry.ts";
import type { WireguardDeviceReconciler } from "./wireguard-device.ts";

export interface WireguardOptions {
  readonly version: IpVersion;
  readonly hostname: string;
  readonly interfaceName: string;
  readonly rulePriority: number;
  readonly mark: number;
  readonly routeProtocol: number;
  readonly peers: PeerRegistry;
  readonly device: WireguardDeviceReconciler;
  /** Undefined if Felix does not write routes. */
  readonly table?: { readonly routes: RouteTable; readonly rules: Rules; readonly index: number };
  readonly logger: Logger;
}

export class WireguardManager implements Manager {
  readonly name: string;
  readonly rules: RoutingRules | undefined;
  readonly #options: WireguardOptions;
  readonly #peerKeys = new Map<string, string>(); // by node: the key of the peer on the device
  readonly #routed = new Map<Cidr, "device" | "throw">();
  #routing: "none" | "throw" | "device" = "none";
  #isUp = false;
  #reported: string | undefined;

  constructor(options: WireguardOptions) {
    this.#options = options;
    this.name = `WireGuard IPv${options.version}`;
    const { table, version, logger } = options;
    if (table === undefined) return;
    const isOwned = isWireguardRule(table.index);
    this.rules = new RoutingRules({ version, table: table.index, rules: table.rules, logger, isOwned });
  }

  onUpdate(message: ManagerMessage): void {
    this.#options.peers.onUpdate(message);
    if (message.type !== "interfaceState" || message.name !== this.#options.interfaceName) return;
    this.#isUp = message.state === "up";
    this.#options.device.queueResync();
  }

  apply(): void {
    const { peers, device, table, rulePriority, mark, version } = this.#options;
    const { nodes, freed } = peers.takeChanges();
    for (const node of nodes) this.#placePeer(node);
    device.setAddress(peers.deviceAddress);
    if (table === undefined) return;
    for (const prefix of freed) this.#unroute(prefix);
    const routing = this.#currentRouting();
    const hasChanged = routing !== this.#routing;
    this.#routing = routing;
    for (const node of hasChanged ? peers.nodes : nodes) this.#placeRoutes(node);
    const rule: Rule = {
      version,
      priority: rulePriority,
      action: "table",
      table: table.index,
      mark: { value: mark, mask: mark },
      inverted: true,
    };
    this.rules?.set(this.#isUp && routing !== "none" ? [rule] : []);
  }

  /** Reports the public key when it changes. An empty key removes the published one. */
  reports(): readonly DataplaneReport[] {
    const { device, version } = this.#options;
    const { publicKey } = device;
    if (publicKey === undefined || publicKey === this.#reported) return [];
    this.#reported = publicKey;
    return [{ type: "wireguardStatus", ipVersion: version, publicKey }];
  }

  #placePeer(node: string): void {
    const { peers, device } = this.#options;
    const peer = peers.peerOf(node);
    const before = this.#peerKeys.get(node);
    if (before !== undefined && before !== peer?.publicKey) {
      this.#peerKeys.delete(node);
      // Another node may have the same key now.
      if (![...this.#peerKeys.values()].includes(before)) device.removePeer(before);
    }
    if (peer === undefined) return;
    this.#peerKeys.set(node, peer.publicKey);
    device.setPeer(peer);
  }

  /** `none` without a device, `throw` until the key is published, then `device`. */
  #currentRouting(): "none" | "throw" | "device" {
    const { device, peers } = this.#options;
    if (device.publicKey === undefined || device.publicKey === "") return "none";
    return peers.publishedKey === device.publicKey ? "device" : "throw";
  }

  #placeRoutes(node: string): void {
    const { peers, table, interfaceName, routeProtocol } = this.#options;
    if (table === undefined) return;
    const isThrough = this.#routing === "device" && peers.peerOf(node) !== undefined;
    for (const destination of peers.prefixesOf(node)) {
      const how = isThrough ? "device" : "throw";
      if (this.#routing !== "none" && this.#routed.get(destination) === how) continue;
      this.#unroute(destination);
      if (this.#routing === "none") continue;
      this.#routed.set(destination, how);
      const base = { destination, protocol: routeProtocol };
      table.routes.set("wireguard", isThrough ? { ...base, interfaceName, scope: "link" } : { ...base, type: "throw" });
    }
  }

  #unroute(destination: Cidr): void {
    const how = this.#routed.get(destination);
    if (how === undefined) return;
    this.#routed.delete(destination);
    const { table, interfaceName } = this.#options;
    table?.routes.remove("wireguard", how === "device" ? { destination, interfaceName } : { destination });
  }
}

/** Recognizes routing rules that only this manager writes. */
export const isWireguardRule =
  (table: number) =>
  (rule: Rule): boolean =>
    rule.table === table && rule.inverted === true && rule.mark !== undefined;
