// Deletes the conntrack entries of addresses that a workload endpoint lost. The rules accept packets of established
// connections before they evaluate policy, so an old entry would let a peer of the old workload reach the next workload
// with the address past its policy.
//
// The owner of an address is the endpoint that packets to it are delivered to. An address is flushed when its owner changes
// or disappears. Owners are compared by endpoint and interface name, not by interface index or route: an endpoint whose
// interface is down, gone or replaced keeps its addresses, and so their connections, until the endpoint itself is removed.
//
// route-table.ts reports further addresses to flush, which no endpoint of this process had: routes that an earlier run
// left in the kernel for workloads that no longer exist, and addresses of remote workloads that have a route of their own.
import {
  addressBits,
  type Cidr,
  cidrAddress,
  cidrLength,
  type IpAddress,
  type IpVersion,
  ipVersion,
} from "../../lib/ip/ip.ts";
import type { ApplyOutcome, Reconciler } from "../loop/manager.ts";

export interface InterfaceOwner {
  /** Identity of the endpoint. */
  readonly endpoint: string;
  readonly destinations: readonly Cidr[];
  /** Undefined while the interface does not exist. */
  readonly link: { readonly index: number; readonly state: "up" | "down" } | undefined;
}

export class StaleConnections implements Reconciler {
  readonly name = "stale connections";
  readonly #deleteByAddress: (addresses: readonly IpAddress[]) => Promise<void>;
  readonly #byInterface = new Map<string, InterfaceOwner>();
  /** Names of all interfaces with an endpoint that claims the address, oldest claim first. */
  readonly #claims = new Map<IpAddress, Set<string>>();
  readonly #owners = new Map<IpAddress, string>();
  readonly #changed = new Set<IpAddress>();
  /** Addresses still to be flushed. They stay here until the kernel has deleted their entries. */
  readonly #pending = new Set<IpAddress>();

  constructor(deleteByAddress: (addresses: readonly IpAddress[]) => Promise<void>) {
    this.#deleteByAddress = deleteByAddress;
  }

  /** @param owner undefined if no endpoint has addresses on the interface */
  setInterface(interfaceName: string, owner: InterfaceOwner | undefined): void {
    const before = this.#byInterface.get(interfaceName);
    if (owner === undefined) this.#byInterface.delete(interfaceName);
    else this.#byInterface.set(interfaceName, owner);
    const addresses = new Set(hostAddresses(owner));
    for (const address of hostAddresses(before)) {
      this.#changed.add(address);
      if (!addresses.has(address)) this.#removeClaim(address, interfaceName);
    }
    for (const address of addresses) {
      this.#changed.add(address);
      const claims = this.#claims.get(address);
      if (claims === undefined) this.#claims.set(address, new Set([interfaceName]));
      else claims.add(interfaceName);
    }
  }

  /**
   * Finds the addresses to flush after all interfaces of a round were set. Called before rules are written: an address that
   * already has its next owner is flushed here, before that owner's chain accepts anything. It is flushed once more when the
   * route to the old owner is deleted, because until then the old owner's chain may accept new connections.
   */
  async resolveOwners(): Promise<void> {
    const takenOver: IpAddress[] = [];
    for (const address of this.#changed) {
      const before = this.#owners.get(address);
      const after = this.#ownerOf(address);
      if (after === undefined) this.#owners.delete(address);
      else this.#owners.set(address, after);
      if (before === undefined || before === after) continue;
      this.#pending.add(address);
      if (after !== undefined) takenOver.push(address);
    }
    this.#changed.clear();
    if (takenOver.length > 0) await this.#deleteByAddress(takenOver);
  }

  /**
   * Flushes what is pending in one family. Called after old routes were deleted and before new ones are written.
   * @param more addresses that the caller found in addition
   * @returns undefined if there is nothing to flush
   */
  flush(version: IpVersion, more: Iterable<IpAddress>): Promise<void> | undefined {
    const addresses = new Set(more);
    for (const address of this.#pending) if (ipVersion(address) === version) addresses.add(address);
    return addresses.size === 0 ? undefined : this.#flushAll(addresses);
  }

  async #flushAll(addresses: ReadonlySet<IpAddress>): Promise<void> {
    for (const address of addresses) this.#pending.delete(address); // no other caller flushes them at the same time
    try {
      await this.#deleteByAddress([...addresses]);
    } catch (error) {
      for (const address of addresses) this.#pending.add(address);
      throw error;
    }
  }

  queueResync(): void {} // entries of the kernel are read at each flush

  /** Flushes what no route table did: the table had nothing to change, or Felix does not write routes. */
  async apply(): Promise<ApplyOutcome> {
    for (const version of [4, 6] as const) await this.flush(version, []);
    return {};
  }

  #removeClaim(address: IpAddress, interfaceName: string): void {
    const claims = this.#claims.get(address);
    claims?.delete(interfaceName);
    if (claims?.size === 0) this.#claims.delete(address);
  }

  /** Of several endpoints, the one that the route leads to: interface up, then newest index, as in desired-routes.ts. */
  #ownerOf(address: IpAddress): string | undefined {
    let best: { readonly name: string; readonly owner: InterfaceOwner } | undefined;
    for (const name of this.#claims.get(address) ?? []) {
      const owner = this.#byInterface.get(name);
      if (owner !== undefined && (best === undefined || !isPreferred(best.owner, owner))) best = { name, owner };
    }
    return best === undefined ? undefined : `${best.owner.endpoint}\u0000${best.name}`;
  }
}

function isPreferred({ link: a }: InterfaceOwner, { link: b }: InterfaceOwner): boolean {
  const isUp = a?.state === "up";
  return isUp === (b?.state === "up") ? (a?.index ?? 0) > (b?.index ?? 0) : isUp;
}

function* hostAddresses(owner: InterfaceOwner | undefined): Generator<IpAddress> {
  for (const destination of owner?.destinations ?? []) {
    const address = cidrAddress(destination);
    if (cidrLength(destination) === addressBits(ipVersion(address))) yield address;
  }
}
