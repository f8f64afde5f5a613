// Encryption between nodes, one family: peers and their prefixes to the device, and a routing table before the main one.
//
//   rule 99  not marked as encrypted ─► table 1   10.65.4.0/26 dev wireguard.cali    a node that has it too
//                                                 throw 10.65.7.0/26                 our own, or a node that has not
//
// Nothing is sent through the device before the others can know our key: the datastore must say what the kernel has.
// Order: device and peers, then routes, then the rule that makes them count.
import type { DataplaneReport } from "../../calc/index.ts";
import type { Rule, Rules } from "../../kernel/index.ts";
import type { Cidr, IpVersion } from "../../lib/ip.ts";
import type { Logger } from "../../lib/log.ts";
import type { Manager, ManagerMessage } from "../manager.ts";
import type { RouteTable } from "../routes/route-table.ts";
import { RoutingRules } from "../routes/routing-rules.ts";
import type { PeerBook } from "./peer-book.ts";
import type { WireguardDeviceReconciler } from "./wireguard-device.ts";

export interface WireguardOptions {
  readonly version: IpVersion;
  readonly hostname: string;
  readonly interfaceName: string;
  readonly rulePriority: number;
  readonly mark: number;
  readonly routeProtocol: number;
  readonly book: PeerBook;
  readonly device: WireguardDeviceReconciler;
  /** The table of our own; nothing when routes are somebody else's business. */
  readonly table?: { readonly routes: RouteTable; readonly rules: Rules; readonly index: number };
  readonly logger: Logger;
}

export class WireguardManager implements Manager {
  readonly name: string;
  readonly rules: RoutingRules | undefined;
  readonly #options: WireguardOptions;
  readonly #peerKeys = new Map<string, string>(); // by node: the key the device has
  readonly #routed = new Map<Cidr, "device" | "throw">();
  #way: "none" | "throw" | "device" = "none";
  #isUp = false;
  #reported: string | undefined;

  constructor(options: WireguardOptions) {
    this.#options = options;
    this.name = `WireGuard IPv${options.version}`;
    const { table, version, logger } = options;
    if (table === undefined) return;
    const isOurs = wireguardRuleOwner(table.index);
    this.rules = new RoutingRules({ version, table: table.index, rules: table.rules, logger, isOurs });
  }

  onUpdate(message: ManagerMessage): void {
    this.#options.book.onUpdate(message);
    if (message.type !== "interfaceState" || message.name !== this.#options.interfaceName) return;
    this.#isUp = message.state === "up";
    this.#options.device.queueResync();
  }

  apply(): void {
    const { book, device, table, rulePriority, mark, version } = this.#options;
    const { nodes, freed } = book.takeChanges();
    for (const node of nodes) this.#placePeer(node);
    device.setAddress(book.deviceAddress);
    if (table === undefined) return;
    for (const prefix of freed) this.#unroute(prefix);
    const way = this.#wayNow();
    const isTurned = way !== this.#way;
    this.#way = way;
    for (const node of isTurned ? book.nodes : nodes) this.#placeRoutes(node);
    const rule: Rule = {
      version,
      priority: rulePriority,
      action: "table",
      table: table.index,
      mark: { value: mark, mask: mark },
      inverted: true,
    };
    this.rules?.set(this.#isUp && way !== "none" ? [rule] : []);
  }

  /** Our public key, told once it is known and whenever it changes; empty takes back what was published. */
  reports(): readonly DataplaneReport[] {
    const { device, version } = this.#options;
    const { publicKey } = device;
    if (publicKey === undefined || publicKey === this.#reported) return [];
    this.#reported = publicKey;
    return [{ type: "wireguardStatus", ipVersion: version, publicKey }];
  }

  #placePeer(node: string): void {
    const { book, device } = this.#options;
    const peer = book.peerOf(node);
    const before = this.#peerKeys.get(node);
    if (before !== undefined && before !== peer?.publicKey) {
      this.#peerKeys.delete(node);
      // Another node may have taken over the key meanwhile.
      if (![...this.#peerKeys.values()].includes(before)) device.removePeer(before);
    }
    if (peer === undefined) return;
    this.#peerKeys.set(node, peer.publicKey);
    device.setPeer(peer);
  }

  /** No way without a device, past it until the others know our key, then through it. */
  #wayNow(): "none" | "throw" | "device" {
    const { device, book } = this.#options;
    if (device.publicKey === undefined || device.publicKey === "") return "none";
    return book.publishedKey === device.publicKey ? "device" : "throw";
  }

  #placeRoutes(node: string): void {
    const { book, table, interfaceName, routeProtocol } = this.#options;
    if (table === undefined) return;
    const isThrough = this.#way === "device" && book.peerOf(node) !== undefined;
    for (const destination of book.prefixesOf(node)) {
      const how = isThrough ? "device" : "throw";
      if (this.#way !== "none" && this.#routed.get(destination) === how) continue;
      this.#unroute(destination);
      if (this.#way === "none") continue;
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

/** Rules to our table that only this manager writes. */
export const wireguardRuleOwner =
  (table: number) =>
  (rule: Rule): boolean =>
    rule.table === table && rule.inverted === true && rule.mark !== undefined;
