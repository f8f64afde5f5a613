// Keeps the IP sets of policies, and those of the static rules.
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { cidrAddress, hostCidr, ipVersion, tryParseAddress, tryParseCidr, tryParseNetwork } from "../../lib/ip/ip.ts";
import { yieldToEventLoop } from "../../lib/retry.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import { SET } from "../rules/config.ts";
import type { IpSets, MemberType } from "../rules/rule-table.ts";
import type { SetNameOwners } from "../rules/name-owners.ts";
import type { SetId } from "../rules/rule.ts";

type PolicySetMessage = Extract<ManagerMessage, { readonly type: "ipSetUpdate" | "ipSetDeltaUpdate" | "ipSetRemove" }>;

/** Number of members that are handled before the clock is read. */
const SLICE_MEMBERS = 500;
const SLICE_MS = 10;

/**
 * Sets of selectors, named ports and services, as the calculation graph sends them. Those with hundreds of thousands of
 * members are handled in slices, between which other tasks of the event loop run; the sets are written after all of them.
 */
export class PolicySetsManager implements Manager {
  readonly name = "IP sets";
  readonly #sets: readonly IpSets[];
  readonly #owners: SetNameOwners;
  #queue: PolicySetMessage[] = [];
  #sliceEndMs = 0;

  constructor(sets: readonly IpSets[], owners: SetNameOwners) {
    this.#sets = sets;
    this.#owners = owners;
  }

  onUpdate(message: ManagerMessage): void {
    if (
      (message.type === "ipSetUpdate" && this.#owners.claim(message.id)) ||
      (message.type === "ipSetDeltaUpdate" && !this.#owners.isRejected(message.id)) ||
      (message.type === "ipSetRemove" && this.#owners.release(message.id))
    )
      this.#queue.push(message);
  }

  async apply(): Promise<void> {
    const queue = this.#queue;
    this.#queue = [];
    this.#sliceEndMs = performance.now() + SLICE_MS;
    for (const message of queue) for (const sets of this.#sets) await this.#handle(message, sets);
  }

  async #handle(message: PolicySetMessage, sets: IpSets): Promise<void> {
    const { id } = message;
    if (message.type === "ipSetRemove") return sets.remove(id);
    if (message.type === "ipSetDeltaUpdate") {
      for (const removed of slicesOf(message.removed)) {
        sets.change(id, [], removed);
        await this.#pause();
      }
      return this.#add(id, message.added, sets);
    }
    const { members, setType } = message;
    if (members.length > SLICE_MEMBERS) sets.remove(id); // else all former members would be deleted in one slice
    sets.replace(id, setType, members.slice(0, SLICE_MEMBERS));
    return this.#add(id, members.slice(SLICE_MEMBERS), sets);
  }

  async #add(id: SetId, members: readonly string[], sets: IpSets): Promise<void> {
    for (const added of slicesOf(members)) {
      sets.change(id, added, []);
      await this.#pause();
    }
  }

  /** Lets other tasks run if this slice has taken long. */
  async #pause(): Promise<void> {
    if (performance.now() < this.#sliceEndMs) return;
    await yieldToEventLoop();
    this.#sliceEndMs = performance.now() + SLICE_MS;
  }
}

function* slicesOf(members: readonly string[]): Generator<readonly string[]> {
  for (let i = 0; i < members.length; i += SLICE_MEMBERS) yield members.slice(i, i + SLICE_MEMBERS);
}

/** A set that is computed from stored messages and replaced as a whole when they change. */
abstract class DerivedSet implements Manager {
  abstract readonly name: string;
  readonly #sets: readonly IpSets[];
  readonly #id: string;
  readonly #type: MemberType;
  #isStale = true;

  constructor(sets: readonly IpSets[], id: string, type: MemberType) {
    this.#sets = sets;
    this.#id = id;
    this.#type = type;
  }

  onUpdate(message: ManagerMessage): void {
    if (this.store(message)) this.#isStale = true;
  }

  apply(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    const members = [...this.members()];
    for (const sets of this.#sets) sets.replace(this.#id, this.#type, members);
  }

  /** @returns true if the members may have changed */
  protected abstract store(message: ManagerMessage): boolean;
  protected abstract members(): Iterable<string>;
}

/** Addresses of this host, without those on workload interfaces. */
export class ThisHostSet extends DerivedSet {
  readonly name = "addresses of this host";
  readonly #addresses = new Map<string, ReadonlySet<IpAddress>>();
  readonly #isWorkload: (interfaceName: string) => boolean;

  constructor(sets: readonly IpSets[], isWorkload: (interfaceName: string) => boolean) {
    super(sets, SET.thisHost, "ip");
    this.#isWorkload = isWorkload;
  }
  protected store(message: ManagerMessage): boolean {
    if (message.type !== "interfaceAddresses" || this.#isWorkload(message.name)) return false;
    if (message.addresses === undefined) this.#addresses.delete(message.name);
    else this.#addresses.set(message.name, message.addresses);
    return true;
  }
  protected *members(): Iterable<string> {
    for (const addresses of this.#addresses.values()) yield* addresses;
  }
}

/** Prefixes of pools, for example of those with outgoing NAT. */
export class PoolSet extends DerivedSet {
  readonly name: string;
  readonly #pools = new Map<string, Cidr>();
  readonly #isDesired: (pool: ManagerMessage & { type: "poolUpdate" }) => boolean;

  constructor(
    sets: readonly IpSets[],
    id: string,
    isDesired: (pool: ManagerMessage & { type: "poolUpdate" }) => boolean,
  ) {
    super(sets, id, "net");
    this.name = `pools ${id}`;
    this.#isDesired = isDesired;
  }
  protected store(message: ManagerMessage): boolean {
    if (message.type === "poolRemove") return this.#pools.delete(message.id);
    if (message.type !== "poolUpdate") return false;
    const before = this.#pools.get(message.id);
    if (!this.#isDesired(message)) return this.#pools.delete(message.id);
    this.#pools.set(message.id, message.cidr);
    return before !== message.cidr;
  }
  protected members(): Iterable<string> {
    return this.#pools.values();
  }
}

/** False for pools with addresses of load balancers only. */
export const isNetworkPool = ({ allowedUses }: { readonly allowedUses: readonly string[] }): boolean =>
  !(allowedUses.length === 1 && allowedUses[0] === "LoadBalancer");

/** Addresses of all nodes, and of external hosts that may send encapsulated packets. */
export class AllHostsSet extends DerivedSet {
  readonly name = "addresses of all hosts";
  readonly #hosts = new Map<string, readonly string[]>();
  readonly #external: readonly Cidr[];

  constructor(sets: readonly IpSets[], external: readonly Cidr[]) {
    super(sets, SET.allHosts, "net");
    this.#external = external;
  }
  protected store(message: ManagerMessage): boolean {
    if (message.type === "hostMetadataRemove") return this.#hosts.delete(message.hostname);
    if (message.type !== "hostMetadataUpdate") return false;
    const addresses = [message.ipv4Addr, message.ipv6Addr].flatMap((text) => {
      const network = text === "" ? undefined : tryParseNetwork(text);
      return network === undefined ? [] : [hostCidr(network.address)];
    });
    this.#hosts.set(message.hostname, addresses);
    return true;
  }
  protected members(): Iterable<string> {
    return [...this.#hosts.values()].flat().concat(this.#external);
  }
}

/** Where VXLAN packets may come from: the other nodes' parent addresses. */
export class VxlanHostsSet extends DerivedSet {
  readonly name = "VXLAN hosts";
  readonly #parents = new Map<string, readonly string[]>();
  readonly #external: readonly Cidr[];
  readonly #hostname: string;

  constructor(sets: readonly IpSets[], external: readonly Cidr[], hostname: string) {
    super(sets, SET.vxlanHosts, "net");
    this.#external = external;
    this.#hostname = hostname;
  }
  protected store(message: ManagerMessage): boolean {
    if (message.type === "vtepRemove") return this.#parents.delete(message.node);
    if (message.type !== "vtepUpdate" || message.node === this.#hostname) return false;
    const addresses = [message.parentDeviceIp, message.parentDeviceIpv6].flatMap((text) => {
      const address = tryParseAddress(text);
      return address === undefined ? [] : [hostCidr(address)];
    });
    this.#parents.set(message.node, addresses);
    return true;
  }
  protected members(): Iterable<string> {
    return [...this.#parents.values()].flat().concat(this.#external);
  }
}

/** Workloads of an ambient mesh. */
export class IstioSet extends DerivedSet {
  readonly name = "ambient mesh workloads";
  readonly #workloads = new Map<string, readonly IpAddress[]>();

  constructor(sets: readonly IpSets[]) {
    super(sets, SET.istio, "ip");
  }
  protected store(message: ManagerMessage): boolean {
    if (message.type !== "workloadEndpointUpdate" && message.type !== "workloadEndpointRemove") return false;
    const key = JSON.stringify(message.id);
    if (message.type === "workloadEndpointRemove" || !message.endpoint.isIstioAmbient)
      return this.#workloads.delete(key);
    const { ipv4Nets, ipv6Nets } = message.endpoint;
    this.#workloads.set(key, [...ipv4Nets, ...ipv6Nets].map(cidrAddress));
    return true;
  }
  protected *members(): Iterable<string> {
    for (const addresses of this.#workloads.values()) yield* addresses;
  }
}

/** Parses prefixes; invalid ones are omitted, because the configuration was validated before. */
export function parsePrefixes(list: readonly string[], version?: 4 | 6): Cidr[] {
  return list.flatMap((text) => {
    const cidr = tryParseCidr(text);
    return cidr === undefined || (version !== undefined && ipVersion(cidr) !== version) ? [] : [cidr];
  });
}
