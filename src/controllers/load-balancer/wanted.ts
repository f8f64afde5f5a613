// Which services get addresses from us, what each asks for, and what has to change for it to have that. Pure.
import type { KubeObject } from "../../datastore/index.ts";
import {
  type Cidr,
  cidrContains,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
} from "../../lib/ip.ts";
import type { Resource, SpecOf } from "../../model/index.ts";

export const ANNOTATION = {
  pools4: "projectcalico.org/ipv4pools",
  pools6: "projectcalico.org/ipv6pools",
  addresses: "projectcalico.org/loadBalancerIPs",
} as const;
const CLASS = "calico";

/** What of a service matters here. */
export interface ServiceFacts {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly isLoadBalancer: boolean;
  /** Empty = anybody's. */
  readonly loadBalancerClass: string;
  readonly loadBalancerIP: string;
  readonly annotations: Readonly<Record<string, string>>;
  readonly families: readonly IpVersion[];
  readonly ingress: readonly Ingress[];
}
/** An entry of the service's status, as somebody wrote it. */
export interface Ingress {
  readonly ip?: string;
  readonly hostname?: string;
}

export interface LoadBalancerPool {
  readonly name: string;
  readonly cidr: Cidr;
  /** Gives addresses without being named. */
  readonly isAutomatic: boolean;
  readonly selectsNamespaces: boolean;
}

/** The addresses by name, or one of each family out of certain pools. */
export type Wish =
  | { readonly kind: "addresses"; readonly addresses: readonly IpAddress[] }
  | {
      readonly kind: "families";
      readonly families: readonly { readonly version: IpVersion; readonly pools?: readonly Cidr[] }[];
    };

export interface Changes {
  readonly release: readonly IpAddress[];
  /** Exactly these. */
  readonly take: readonly IpAddress[];
  /** One of each. */
  readonly assign: readonly { readonly version: IpVersion; readonly pools?: readonly Cidr[] }[];
}

/** The service asks for something that cannot be meant: nothing is changed until it is put right. */
export class InvalidWish extends Error {
  override readonly name = "InvalidWish";
}

interface ServiceJson extends KubeObject {
  readonly spec?: {
    readonly type?: string;
    readonly loadBalancerClass?: string;
    readonly loadBalancerIP?: string;
    readonly ipFamilies?: readonly string[];
  };
  readonly status?: { readonly loadBalancer?: { readonly ingress?: readonly Ingress[] } };
}

export function serviceFacts(object: KubeObject): ServiceFacts {
  const { metadata, spec = {}, status } = object as ServiceJson;
  const own: readonly string[] = Object.values(ANNOTATION);
  return {
    name: metadata.name,
    namespace: metadata.namespace ?? "",
    uid: metadata.uid ?? "",
    isLoadBalancer: spec.type === "LoadBalancer",
    loadBalancerClass: spec.loadBalancerClass ?? "",
    loadBalancerIP: spec.loadBalancerIP ?? "",
    annotations: Object.fromEntries(
      Object.entries(metadata.annotations ?? {}).filter(([key, value]) => own.includes(key) && value !== ""),
    ),
    families: (spec.ipFamilies ?? []).map((family) => (family === "IPv6" ? 6 : 4)),
    ingress: status?.loadBalancer?.ingress ?? [],
  };
}

/** A class that is another's is another's; without one it depends on what the operator chose. */
export function isManaged(service: ServiceFacts, assignIPs: "AllServices" | "RequestedServicesOnly"): boolean {
  if (!service.isLoadBalancer) return false;
  if (service.loadBalancerClass !== "") return service.loadBalancerClass === CLASS;
  return assignIPs === "AllServices" || Object.keys(service.annotations).length > 0 || service.loadBalancerIP !== "";
}

export function loadBalancerPools(pools: Iterable<Resource>): readonly LoadBalancerPool[] {
  return [...pools].flatMap(({ metadata, spec }) => {
    const { cidr: text, allowedUses = [], assignmentMode, namespaceSelector = "" } = spec as SpecOf<"IPPool">;
    const cidr = tryParseCidr(text);
    if (cidr === undefined || !allowedUses.includes("LoadBalancer")) return [];
    return [
      {
        name: metadata.name,
        cidr,
        isAutomatic: assignmentMode !== "Manual",
        selectsNamespaces: namespaceSelector !== "" && namespaceSelector !== "all()",
      },
    ];
  });
}

/** @throws InvalidWish */
export function wishOf(service: ServiceFacts, pools: readonly LoadBalancerPool[]): Wish {
  const addresses = namedAddresses(service);
  if (addresses.length > 0) return { kind: "addresses", addresses };
  const byFamily = new Map<IpVersion, readonly Cidr[]>();
  for (const [version, key] of [
    [4, ANNOTATION.pools4],
    [6, ANNOTATION.pools6],
  ] as const) {
    const text = service.annotations[key];
    if (text !== undefined)
      byFamily.set(
        version,
        textList(key, text).map((word) => namedPool(key, word, version, pools)),
      );
  }
  const families = [...new Set(service.families)].map((version) => {
    const named = byFamily.get(version);
    return { version, ...(named === undefined ? {} : { pools: named }) };
  });
  return { kind: "families", families };
}

/** What to give back and what to get. An address it has is kept as long as it is what the service asks for. */
export function changesFor(
  wish: Wish,
  held: readonly IpAddress[],
  pools: readonly LoadBalancerPool[],
  shown: readonly IpAddress[] = [],
): Changes {
  // Without any pool for services there is nothing to keep an address from.
  if (pools.length === 0) return { release: held, take: [], assign: [] };
  if (wish.kind === "addresses")
    return {
      release: held.filter((address) => !wish.addresses.includes(address)),
      take: wish.addresses.filter((address) => !held.includes(address)),
      assign: [],
    };
  const kept = new Set<IpAddress>();
  const assign: Changes["assign"][number][] = [];
  for (const family of wish.families) {
    const fitting = held.filter(
      (address) => ipVersion(address) === family.version && isFrom(address, family.pools, pools),
    );
    // Of several, the one that clients know.
    const one = fitting.find((address) => shown.includes(address)) ?? fitting[0];
    if (one === undefined) assign.push(family);
    else kept.add(one);
  }
  return { release: held.filter((address) => !kept.has(address)), take: [], assign };
}

/** The status of a service that holds these: what others wrote stays, whatever is out of our pools is ours. */
export function ingressWith(
  current: readonly Ingress[],
  held: readonly IpAddress[],
  isOurs: (address: IpAddress) => boolean,
): readonly Ingress[] {
  const kept = current.filter(({ ip }) => {
    const address = ip === undefined ? undefined : tryParseAddress(ip);
    return address === undefined || held.includes(address) || !isOurs(address);
  });
  const shown = new Set(kept.map(({ ip }) => (ip === undefined ? undefined : tryParseAddress(ip))));
  return [...kept, ...held.filter((address) => !shown.has(address)).map((ip) => ({ ip }))];
}

/** Out of the pools that were named; where none were, out of one that gives addresses by itself, or that is gone. */
function isFrom(address: IpAddress, named: readonly Cidr[] | undefined, pools: readonly LoadBalancerPool[]): boolean {
  if (named !== undefined) return named.some((cidr) => cidrContains(cidr, address));
  return pools.find(({ cidr }) => cidrContains(cidr, address))?.isAutomatic ?? true;
}

function namedAddresses({ annotations, loadBalancerIP }: ServiceFacts): readonly IpAddress[] {
  const text = annotations[ANNOTATION.addresses];
  if (text === undefined && loadBalancerIP === "") return [];
  const what = text === undefined ? "spec.loadBalancerIP" : ANNOTATION.addresses;
  const words = text === undefined ? [loadBalancerIP] : textList(ANNOTATION.addresses, text);
  const addresses = words.map((word) => {
    const address = tryParseAddress(word);
    if (address === undefined) throw new InvalidWish(`${what}: ${JSON.stringify(word)} is no address`);
    return address;
  });
  for (const version of [4, 6] as const)
    if (addresses.filter((address) => ipVersion(address) === version).length > 1)
      throw new InvalidWish(`${what}: more than one IPv${version} address; want one of each family at most`);
  return addresses;
}

function namedPool(key: string, word: string, version: IpVersion, pools: readonly LoadBalancerPool[]): Cidr {
  const cidr = tryParseCidr(word) ?? pools.find(({ name }) => name === word)?.cidr;
  if (cidr === undefined)
    throw new InvalidWish(
      `${key}: no pool ${JSON.stringify(word)} that allows use LoadBalancer; name one, or its CIDR`,
    );
  if (ipVersion(cidr) !== version) throw new InvalidWish(`${key}: pool ${word} is not IPv${version}`);
  return cidr;
}

function textList(key: string, text: string): readonly string[] {
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value) && value.every((word) => typeof word === "string")) return value;
  } catch {
    // falls through
  }
  throw new InvalidWish(`${key}: want a JSON list of texts such as ["pool-1"], got ${text}`);
}
