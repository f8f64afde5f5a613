// Calculates the members of IP sets that are defined by a service: the addresses in its EndpointSlices, with or without
// ports. Endpoints that are not ready are included, because a policy depends on the identity of a peer, not its health.
import { hostCidr } from "../../lib/ip/ip.ts";
import type { EndpointSlice, ResourceKey } from "../../model/index.ts";
import type { IpSetContent, IpSetSpec, MemberListener } from "./ip-set.ts";
import { MemberSet } from "./member-set.ts";

type ServiceContent = Extract<IpSetContent, { readonly kind: "service" }>;

interface Slice {
  readonly service: string;
  readonly content: EndpointSlice;
}
interface ServiceSet {
  readonly members: MemberSet;
  readonly service: string;
  readonly ports: boolean;
}

export class ServiceIndex {
  readonly #slices = new Map<string, Slice>();
  readonly #slicesByService = new Map<string, Map<string, EndpointSlice>>();
  readonly #sets = new Map<string, ServiceSet>();
  readonly #setsByService = new Map<string, Set<ServiceSet>>();
  readonly #listener: MemberListener;
  readonly #omitNestedPrefixes: boolean;

  constructor(listener: MemberListener, options: { readonly omitNestedPrefixes: boolean }) {
    this.#listener = listener;
    this.#omitNestedPrefixes = options.omitNestedPrefixes;
  }

  setSlice(key: ResourceKey, slice: EndpointSlice | undefined): void {
    const id = `${key.namespace ?? ""}/${key.name}`;
    const before = this.#slices.get(id);
    const after =
      slice?.service === undefined ? undefined : { service: `${key.namespace ?? ""}/${slice.service}`, content: slice };
    if (after === undefined) this.#slices.delete(id);
    else this.#slices.set(id, after);
    // Add first, so that an address that is in both versions of the slice is never removed in between.
    if (after !== undefined) {
      this.#register(id, after);
      for (const set of this.#setsByService.get(after.service) ?? [])
        for (const member of membersOf(after.content, set.ports)) set.members.add(member);
    }
    if (before === undefined) return;
    if (before.service !== after?.service) this.#unregister(id, before);
    for (const set of this.#setsByService.get(before.service) ?? [])
      for (const member of membersOf(before.content, set.ports)) set.members.remove(member);
  }

  addSet(spec: IpSetSpec & { readonly content: ServiceContent }): void {
    const { service, ports } = spec.content;
    const members = new MemberSet(spec.id, this.#listener, this.#omitNestedPrefixes && !ports);
    const set: ServiceSet = { members, service, ports };
    this.#sets.set(spec.id, set);
    let sets = this.#setsByService.get(service);
    if (sets === undefined) this.#setsByService.set(service, (sets = new Set()));
    sets.add(set);
    for (const slice of this.#slicesByService.get(service)?.values() ?? [])
      for (const member of membersOf(slice, ports)) members.add(member);
  }

  removeSet(id: string): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    const sets = this.#setsByService.get(set.service);
    sets?.delete(set);
    if (sets?.size === 0) this.#setsByService.delete(set.service);
  }

  #register(id: string, slice: Slice): void {
    let slices = this.#slicesByService.get(slice.service);
    if (slices === undefined) this.#slicesByService.set(slice.service, (slices = new Map()));
    slices.set(id, slice.content);
  }

  #unregister(id: string, slice: Slice): void {
    const slices = this.#slicesByService.get(slice.service);
    slices?.delete(id);
    if (slices?.size === 0) this.#slicesByService.delete(slice.service);
  }
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
