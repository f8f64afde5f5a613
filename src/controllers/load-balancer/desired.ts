// Decides which services get addresses, which addresses each requests, and which changes are necessary. Pure.
import type { KubeObject } from "../../datastore/index.ts";
import {
  type Cidr,
  cidrContains,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
} from "../../lib/ip/ip.ts";
import { quote, shorten } from "../../lib/shorten.ts";
import { ignoreUnreadable, readPool, type Resource } from "../../model/index.ts";

export const ANNOTATION = {
  pools4: "projectcalico.org/ipv4pools",
  pools6: "projectcalico.org/ipv6pools",
  addresses: "projectcalico.org/loadBalancerIPs",
} as const;
const CLASS = "calico";

/** The fields of a service that the controller uses. */
export interface ServiceFacts {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly isLoadBalancer: boolean;
  /** Empty if the service does not select an implementation. */
  readonly loadBalancerClass: string;
  readonly loadBalancerIP: string;
  readonly annotations: Readonly<Record<string, string>>;
  readonly families: readonly IpVersion[];
  readonly ingress: readonly Ingress[];
}
/** An entry of `status.loadBalancer.ingress`. Other programs may also write entries. */
export interface Ingress {
  readonly ip?: string;
  readonly hostname?: string;
}

export interface LoadBalancerPool {
  readonly name: string;
  readonly cidr: Cidr;
  /** Assigns addresses to services that do not name the pool. */
  readonly isAutomatic: boolean;
  readonly selectsNamespaces: boolean;
}

/** Either exact addresses, or one address of each family, optionally from certain pools. */
export type AddressRequest =
  | { readonly kind: "addresses"; readonly addresses: readonly IpAddress[] }
  | {
      readonly kind: "families";
      readonly families: readonly { readonly version: IpVersion; readonly pools?: readonly Cidr[] }[];
    };

export interface Changes {
  readonly release: readonly IpAddress[];
  /** Exact addresses to assign. */
  readonly assignExact: readonly IpAddress[];
  /** One address is assigned for each entry. */
  readonly assign: readonly { readonly version: IpVersion; readonly pools?: readonly Cidr[] }[];
}

/** The request of the service is invalid. Its addresses stay unchanged until the request is corrected. */
export class InvalidAddressRequest extends Error {
  override readonly name = "InvalidAddressRequest";
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

/** A service with a class is managed only if the class is `calico`; for a service without a class, `assignIPs` decides. */
export function isManaged(service: ServiceFacts, assignIPs: "AllServices" | "RequestedServicesOnly"): boolean {
  if (!service.isLoadBalancer) return false;
  if (service.loadBalancerClass !== "") return service.loadBalancerClass === CLASS;
  return assignIPs === "AllServices" || Object.keys(service.annotations).length > 0 || service.loadBalancerIP !== "";
}

export function loadBalancerPools(pools: Iterable<Resource>): readonly LoadBalancerPool[] {
  return [...pools].flatMap((resource) => {
    const pool = readPool(resource, ignoreUnreadable);
    if (pool === undefined || !pool.allowedUses.includes("LoadBalancer")) return [];
    const { name, cidr, isAutomatic, namespaceSelector } = pool;
    const selectsNamespaces = namespaceSelector !== "" && namespaceSelector !== "all()";
    return [{ name, cidr, isAutomatic, selectsNamespaces }];
  });
}

/** @throws InvalidAddressRequest */
export function readAddressRequest(service: ServiceFacts, pools: readonly LoadBalancerPool[]): AddressRequest {
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
        parseStringList(key, text).map((text) => namedPool(key, text, version, pools)),
      );
  }
  const families = [...new Set(service.families)].map((version) => {
    const named = byFamily.get(version);
    return { version, pools: named };
  });
  return { kind: "families", families };
}

/** An address that the service has is kept if it matches the request. */
export function changesFor(
  request: AddressRequest,
  allocated: readonly IpAddress[],
  pools: readonly LoadBalancerPool[],
  inStatus: readonly IpAddress[] = [],
): Changes {
  // Without a pool for services, no address may be kept.
  if (pools.length === 0) return { release: allocated, assignExact: [], assign: [] };
  if (request.kind === "addresses")
    return {
      release: allocated.filter((address) => !request.addresses.includes(address)),
      assignExact: request.addresses.filter((address) => !allocated.includes(address)),
      assign: [],
    };
  const kept = new Set<IpAddress>();
  const assign: Changes["assign"][number][] = [];
  for (const family of request.families) {
    const matching = allocated.filter(
      (address) => ipVersion(address) === family.version && isFromAllowedPool(address, family.pools, pools),
    );
    // Of several, keep the address in the status, because clients may already use it.
    const one = matching.find((address) => inStatus.includes(address)) ?? matching[0];
    if (one === undefined) assign.push(family);
    else kept.add(one);
  }
  return { release: allocated.filter((address) => !kept.has(address)), assignExact: [], assign };
}

/** Entries for the status of a service. Entries with an address of a pool are managed here; all other entries are kept. */
export function ingressWith(
  current: readonly Ingress[],
  allocated: readonly IpAddress[],
  isFromPool: (address: IpAddress) => boolean,
): readonly Ingress[] {
  const kept = current.filter(({ ip }) => {
    const address = ip === undefined ? undefined : tryParseAddress(ip);
    return address === undefined || allocated.includes(address) || !isFromPool(address);
  });
  const keptAddresses = new Set(kept.map(({ ip }) => (ip === undefined ? undefined : tryParseAddress(ip))));
  return [...kept, ...allocated.filter((address) => !keptAddresses.has(address)).map((ip) => ({ ip }))];
}

/** If the service names pools: whether one contains the address. Otherwise: whether its pool is automatic or deleted. */
function isFromAllowedPool(
  address: IpAddress,
  named: readonly Cidr[] | undefined,
  pools: readonly LoadBalancerPool[],
): boolean {
  if (named !== undefined) return named.some((cidr) => cidrContains(cidr, address));
  return pools.find(({ cidr }) => cidrContains(cidr, address))?.isAutomatic ?? true;
}

function namedAddresses({ annotations, loadBalancerIP }: ServiceFacts): readonly IpAddress[] {
  const text = annotations[ANNOTATION.addresses];
  if (text === undefined && loadBalancerIP === "") return [];
  const source = text === undefined ? "spec.loadBalancerIP" : ANNOTATION.addresses;
  const entries = text === undefined ? [loadBalancerIP] : parseStringList(ANNOTATION.addresses, text);
  const addresses = entries.map((entry) => {
    const address = tryParseAddress(entry);
    if (address === undefined) throw new InvalidAddressRequest(`${source}: ${quote(entry)} is not an IP address`);
    return address;
  });
  for (const version of [4, 6] as const)
    if (addresses.filter((address) => ipVersion(address) === version).length > 1)
      throw new InvalidAddressRequest(
        `${source}: more than one IPv${version} address; want at most one of each family`,
      );
  return addresses;
}

function namedPool(key: string, text: string, version: IpVersion, pools: readonly LoadBalancerPool[]): Cidr {
  const cidr = tryParseCidr(text) ?? pools.find(({ name }) => name === text)?.cidr;
  if (cidr === undefined)
    throw new InvalidAddressRequest(
      `${key}: no pool ${quote(text)} with LoadBalancer in spec.allowedUses; want the name or CIDR of such a pool`,
    );
  if (ipVersion(cidr) !== version)
    throw new InvalidAddressRequest(`${key}: pool ${shorten(text)} is not IPv${version}`);
  return cidr;
}

function parseStringList(key: string, text: string): readonly string[] {
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value) && value.every((entry) => typeof entry === "string")) return value;
  } catch {
    // falls through
  }
  throw new InvalidAddressRequest(`${key}: want a JSON list of strings such as ["pool-1"], got ${shorten(text)}`);
}
