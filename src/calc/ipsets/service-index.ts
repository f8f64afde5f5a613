// The members of IP sets named by service: the addresses in its EndpointSlices, with or without their ports. Ready or
// not makes no difference: a policy is about who a peer is, not about how it feels.
import { hostCidr, tryParseAddress } from "../../lib/ip.ts";
import type { Resource, ResourceKey } from "../../model/index.ts";
import { type EndpointSlice, endpointSliceOf } from "../resources.ts";
import type { IpSetContent, IpSetSpec, MemberListener } from "./ip-set.ts";
import { MemberSet } from "./member-set.ts";

const SERVICE_LABEL = "kubernetes.io/service-name";

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
  readonly #slicesOf = new Map<string, Map<string, EndpointSlice>>();
  readonly #sets = new Map<string, ServiceSet>();
  readonly #setsOf = new Map<string, Set<ServiceSet>>();
  readonly #listener: MemberListener;
  readonly #withoutOverlaps: boolean;

  constructor(listener: MemberListener, options: { readonly withoutOverlaps: boolean }) {
    this.#listener = listener;
    this.#withoutOverlaps = options.withoutOverlaps;
  }

  setSlice(key: ResourceKey, resource: Resource | undefined): void {
    const id = `${key.namespace ?? ""}/${key.name}`;
    const before = this.#slices.get(id);
    const label = resource?.metadata.labels?.[SERVICE_LABEL];
    const after =
      resource === undefined || label === undefined || label === ""
        ? undefined
        : { service: `${key.namespace ?? ""}/${label}`, content: endpointSliceOf(resource) };
    if (after === undefined) this.#slices.delete(id);
    else this.#slices.set(id, after);
    // What comes is counted before what goes, so that an address in both never flaps.
    if (after !== undefined) {
      this.#register(id, after);
      for (const set of this.#setsOf.get(after.service) ?? [])
        for (const member of membersOf(after.content, set.ports)) set.members.add(member);
    }
    if (before === undefined) return;
    if (before.service !== after?.service) this.#unregister(id, before);
    for (const set of this.#setsOf.get(before.service) ?? [])
      for (const member of membersOf(before.content, set.ports)) set.members.remove(member);
  }

  addSet(spec: IpSetSpec & { readonly content: ServiceContent }): void {
    const { service, ports } = spec.content;
    const members = new MemberSet(spec.id, this.#listener, this.#withoutOverlaps && !ports);
    const set: ServiceSet = { members, service, ports };
    this.#sets.set(spec.id, set);
    let sets = this.#setsOf.get(service);
    if (sets === undefined) this.#setsOf.set(service, (sets = new Set()));
    sets.add(set);
    for (const slice of this.#slicesOf.get(service)?.values() ?? [])
      for (const member of membersOf(slice, ports)) members.add(member);
  }

  removeSet(id: string): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    const sets = this.#setsOf.get(set.service);
    sets?.delete(set);
    if (sets?.size === 0) this.#setsOf.delete(set.service);
  }

  #register(id: string, slice: Slice): void {
    let slices = this.#slicesOf.get(slice.service);
    if (slices === undefined) this.#slicesOf.set(slice.service, (slices = new Map()));
    slices.set(id, slice.content);
  }

  #unregister(id: string, slice: Slice): void {
    const slices = this.#slicesOf.get(slice.service);
    slices?.delete(id);
    if (slices?.size === 0) this.#slicesOf.delete(slice.service);
  }
}

function membersOf(slice: EndpointSlice, withPorts: boolean): string[] {
  const members: string[] = [];
  for (const { addresses = [] } of slice.endpoints ?? [])
    for (const text of addresses) {
      const address = tryParseAddress(text);
      if (address === undefined) continue;
      if (!withPorts) members.push(hostCidr(address));
      else
        for (const { protocol = "TCP", port = 0 } of slice.ports ?? [])
          if (isPort(protocol, port)) members.push(`${address},${protocol.toLowerCase()}:${port}`);
    }
  return members;
}

/** The API server asks no slice whether its ports are any, and whoever may write services may write slices. */
const isPort = (protocol: string, port: number): boolean =>
  PROTOCOLS.has(protocol) && Number.isInteger(port) && port >= 1 && port <= 65535;
const PROTOCOLS: ReadonlySet<string> = new Set(["TCP", "UDP", "SCTP"]);
