// Calculates the members of IP sets that are defined by a service: the addresses in its EndpointSlices, with or without
// ports. Endpoints that are not ready are included, because a policy depends on the identity of a peer, not its health.
// One slice may have 100,000 members and a service any number of slices, so members are emitted in steps.
import { hostCidr } from "../../lib/ip/ip.ts";
import type { EndpointSlice, ResourceKey } from "../../model/index.ts";
import type { IpSetId } from "../messages.ts";
import type { IpSetContent, IpSetSpec, MemberListener } from "./ip-set.ts";
import { LongLists } from "./long-lists.ts";
import { MemberSet } from "./member-set.ts";
import { addTo, deleteFrom } from "./sets-by-key.ts";

type ServiceContent = Extract<IpSetContent, { readonly kind: "service" }>;

interface Slice {
  readonly service: string;
  readonly content: EndpointSlice;
  readonly addressCount: number;
  readonly portCount: number;
}
interface ServiceSet {
  readonly spec: IpSetSpec;
  readonly service: string;
  readonly ports: boolean;
  /** The number of members. An address that two slices share counts twice. */
  count: number;
  /** Members by ID of the slice. Undefined while the set is only counted. */
  filled: LongLists<string> | undefined;
  /** The number of slices when the set was filled. It is complete when their members were emitted. */
  slicesAtFirst: number;
}

export class ServiceIndex {
  readonly #slices = new Map<string, Slice>();
  readonly #sliceIds = new Map<string, Set<string>>(); // by service
  readonly #sets = new Map<IpSetId, ServiceSet>();
  readonly #setsByService = new Map<string, Set<ServiceSet>>();
  readonly #unsettledSets = new Set<ServiceSet>();
  readonly #listener: MemberListener;
  readonly #omitNestedPrefixes: boolean;
  readonly #onCountChanged: (id: IpSetId) => void;

  constructor(
    listener: MemberListener,
    options: { readonly omitNestedPrefixes: boolean },
    onCountChanged: (id: IpSetId) => void = () => {},
  ) {
    this.#listener = listener;
    this.#omitNestedPrefixes = options.omitNestedPrefixes;
    this.#onCountChanged = onCountChanged;
  }

  setSlice(key: ResourceKey, slice: EndpointSlice | undefined): void {
    const id = `${key.namespace ?? ""}/${key.name}`;
    const before = this.#slices.get(id);
    const after =
      slice?.service === undefined ? undefined : countedSlice(`${key.namespace ?? ""}/${slice.service}`, slice);
    if (after === undefined) this.#slices.delete(id);
    else this.#slices.set(id, after);
    if (after !== undefined) addTo(this.#sliceIds, after.service, id);
    if (before !== undefined && before.service !== after?.service) deleteFrom(this.#sliceIds, before.service, id);
    for (const service of new Set([before?.service, after?.service]))
      for (const set of this.#setsByService.get(service ?? "") ?? []) {
        set.count += sizeIn(set, after) - sizeIn(set, before);
        this.#onCountChanged(set.spec.id);
        set.filled?.onChanged(id);
        this.#queueStep(set);
      }
  }

  /**
   * Does one step of the work that changes of slices left.
   * @returns false if nothing is left
   */
  step(): boolean {
    for (const set of this.#unsettledSets) {
      this.#unsettledSets.delete(set);
      set.filled?.step();
      this.#queueStep(set); // behind the others
      return true;
    }
    return false;
  }

  /** Counts the members of the set. */
  addSet(spec: IpSetSpec & { readonly content: ServiceContent }): void {
    const { service, ports } = spec.content;
    const set: ServiceSet = { spec, service, ports, count: 0, filled: undefined, slicesAtFirst: 0 };
    for (const id of this.#sliceIds.get(service) ?? []) set.count += sizeIn(set, this.#slices.get(id));
    this.#sets.set(spec.id, set);
    addTo(this.#setsByService, service, set);
  }

  memberCount(id: IpSetId): number {
    return this.#sets.get(id)?.count ?? 0;
  }

  /** Returns how many members are contributed by services of other namespaces. */
  foreignCount(id: IpSetId, namespace: string): number {
    const set = this.#sets.get(id);
    return set === undefined || set.service.startsWith(`${namespace}/`) ? 0 : set.count;
  }

  /** Starts to emit the members of the set and, until `empty` is called, their changes. */
  fill(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) throw new Error(`IP set ${id} is not in the index`);
    const { ports, service } = set;
    const members = new MemberSet(id, this.#listener, this.#omitNestedPrefixes && !ports);
    const desired = (sliceId: string) => {
      const slice = this.#slices.get(sliceId);
      return slice?.service === service ? membersOf(slice.content, ports) : [];
    };
    set.filled = new LongLists(members, { desired, minLength: 1 });
    const sliceIds = this.#sliceIds.get(service) ?? new Set();
    for (const sliceId of sliceIds) set.filled.onChanged(sliceId);
    set.slicesAtFirst = sliceIds.size;
  }

  /** Does one step of emitting the members of the set. Returns true if all members were emitted. */
  fillStep(id: IpSetId): boolean {
    const set = this.#sets.get(id);
    if (set?.filled === undefined || set.filled.changesApplied >= set.slicesAtFirst) return true;
    set.filled.step();
    return set.filled.changesApplied >= set.slicesAtFirst;
  }

  /** Stops emitting the members of the set. Their removal is not emitted, because the caller removes the set itself. */
  empty(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set !== undefined) set.filled = undefined;
  }

  removeSet(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    deleteFrom(this.#setsByService, set.service, set);
  }

  #queueStep(set: ServiceSet): void {
    if (set.filled?.isSettled === false) this.#unsettledSets.add(set);
  }
}

function countedSlice(service: string, content: EndpointSlice): Slice {
  const addressCount = content.endpoints.reduce((sum, { addresses }) => sum + addresses.length, 0);
  const portCount = content.ports.filter(({ protocol, port }) => isPort(protocol, port)).length;
  return { service, content, addressCount, portCount };
}

function sizeIn(set: Pick<ServiceSet, "service" | "ports">, slice: Slice | undefined): number {
  if (slice?.service !== set.service) return 0;
  return set.ports ? slice.addressCount * slice.portCount : slice.addressCount;
}

function membersOf({ endpoints, ports }: EndpointSlice, withPorts: boolean): string[] {
  const members: string[] = [];
  for (const { addresses } of endpoints)
    for (const address of addresses)
      if (!withPorts) members.push(hostCidr(address));
      else
        for (const { protocol, port } of ports)
          if (isPort(protocol, port)) members.push(`${address},${protocol.toLowerCase()}:${port}`);
  return members;
}

/** The API server does not validate the ports of an EndpointSlice, and its author may be an untrusted tenant. */
const isPort = (protocol: string, port: number): boolean =>
  PROTOCOLS.has(protocol) && Number.isInteger(port) && port >= 1 && port <= 65535;
const PROTOCOLS: ReadonlySet<string> = new Set(["TCP", "UDP", "SCTP"]);
