// Everything a verdict depends on, looked up the plain way: who owns an address, which labels an endpoint has with
// those it inherits, which policies there are in which order. Made from the entries a syncer gives; knows nothing of
// IP sets or of how rules are programmed.
import { type Cidr, cidrContains, hostCidr, type IpAddress } from "../lib/ip/ip.ts";
import {
  comparePolicies,
  compareTiers,
  type EndpointPort,
  type FelixConfig,
  type FelixSettingName,
  felixSettingValue,
  type HostEndpoint,
  type HostEndpointKey,
  ignoreUnreadable,
  isStagedKind,
  type KeyValue,
  type LabelLookup,
  type Labels,
  type NetworkSet,
  type Policy,
  type PolicyKey,
  type ProfileRules,
  readEndpointSlice,
  readNode,
  type Resource,
  type Tier,
  type WorkloadEndpoint,
  type WorkloadEndpointKey,
} from "../model/index.ts";

export interface Workload {
  readonly kind: "workload";
  readonly key: WorkloadEndpointKey;
  readonly value: WorkloadEndpoint;
}
export interface Host {
  readonly kind: "host";
  readonly key: HostEndpointKey;
  readonly value: HostEndpoint;
}
export type Endpoint = Workload | Host;

/** Something that stands behind addresses and has labels. */
export interface Owner {
  readonly name: string;
  readonly labels: LabelLookup;
  readonly ports: readonly EndpointPort[];
}

export interface PlacedPolicy {
  readonly key: PolicyKey;
  readonly policy: Policy;
  readonly staged: boolean;
}
export interface PlacedTier {
  readonly name: string;
  readonly defaultAction: "Deny" | "Pass";
  readonly policies: readonly PlacedPolicy[];
}

interface ServiceBackend {
  readonly addresses: readonly IpAddress[];
  readonly ports: readonly { readonly protocol: string; readonly port: number }[];
}

export class PolicyState {
  readonly workloads: Workload[] = [];
  readonly hosts: Host[] = [];
  /** In the order they are evaluated. */
  readonly tiers: readonly PlacedTier[];
  readonly #profileRules = new Map<string, ProfileRules>();
  readonly #profileLabels = new Map<string, Labels>();
  readonly #sets: { readonly name: string; readonly set: NetworkSet }[] = [];
  readonly #backends = new Map<string, ServiceBackend[]>(); // by namespace/service
  readonly #config = new Map<string, string>(); // by name, or host and name
  readonly #hostAddresses = new Map<IpAddress, string>();
  readonly #byAddress = new Map<Cidr, Endpoint[]>();
  readonly #owners = new Map<IpAddress, readonly Owner[]>(); // found so far

  constructor(entries: Iterable<KeyValue>) {
    const tiers = new Map<string, Tier>();
    const policies: PlacedPolicy[] = [];
    for (const entry of entries) {
      const { key } = entry;
      switch (key.type) {
        case "workloadEndpoint":
          this.workloads.push({ kind: "workload", key, value: entry.value as WorkloadEndpoint });
          break;
        case "hostEndpoint":
          this.hosts.push({ kind: "host", key, value: entry.value as HostEndpoint });
          break;
        case "policy":
          policies.push({ key, policy: entry.value as Policy, staged: isStagedKind(key.kind) });
          break;
        case "profileRules":
          this.#profileRules.set(key.name, entry.value as ProfileRules);
          break;
        case "profileLabels":
          this.#profileLabels.set(key.name, entry.value as Labels);
          break;
        case "tier":
          tiers.set(key.name, entry.value as Tier);
          break;
        case "networkSet":
          this.#sets.push({ name: key.name, set: entry.value as NetworkSet });
          break;
        case "globalConfig":
          this.#config.set(key.name, entry.value as string);
          break;
        case "hostConfig":
          this.#config.set(`${key.host}/${key.name}`, entry.value as string);
          break;
        case "hostIp":
          this.#hostAddresses.set(entry.value as IpAddress, key.host);
          break;
        case "resource":
          if (key.kind === "Node") this.#addNode(entry.value as Resource);
          if (key.kind === "KubernetesEndpointSlice") this.#addSlice(entry.value as Resource);
          break;
        default: // nothing that bears on policy
      }
    }
    // Whatever order the entries came in, the same is found first.
    this.workloads.sort((a, b) => compareText(endpointName(a), endpointName(b)));
    this.hosts.sort((a, b) => compareText(a.key.endpoint, b.key.endpoint));
    this.#sets.sort((a, b) => compareText(a.name, b.name));
    for (const endpoint of [...this.workloads, ...this.hosts])
      for (const address of new Set(addressesOf(endpoint))) {
        const others = this.#byAddress.get(address);
        if (others === undefined) this.#byAddress.set(address, [endpoint]);
        else others.push(endpoint);
      }
    for (const host of this.hosts)
      for (const address of [...host.value.expectedIpv4Addrs, ...host.value.expectedIpv6Addrs])
        this.#hostAddresses.set(address, host.key.host);
    this.tiers = placeTiers(tiers, policies);
  }

  /** A profile's rules; nothing when there is no such profile. */
  profile(name: string): ProfileRules | undefined {
    return this.#profileRules.get(name);
  }

  /** A setting of Felix on that host. */
  setting<N extends FelixSettingName>(name: N, host: string): FelixConfig[N] {
    return felixSettingValue(name, this.#config.get(`${host}/${name}`) ?? this.#config.get(name));
  }

  /** The host whose own address it is. */
  hostOf(address: IpAddress): string | undefined {
    return this.#hostAddresses.get(address);
  }

  /** The address under which a host is known; for choosing the interface others reach it by. */
  addressesOf(host: string): readonly IpAddress[] {
    return [...this.#hostAddresses].filter(([, name]) => name === host).map(([address]) => address);
  }

  workloadAt(address: IpAddress): Workload | undefined {
    return this.#byAddress.get(hostCidr(address))?.find((endpoint) => endpoint.kind === "workload");
  }

  /** Own labels first, then each profile's in the order it is listed. */
  labelsOf(endpoint: { readonly labels: Labels; readonly profileIds: readonly string[] }): LabelLookup {
    return {
      get: (label) => {
        if (Object.hasOwn(endpoint.labels, label)) return endpoint.labels[label];
        for (const id of endpoint.profileIds) {
          const labels = this.#profileLabels.get(id);
          if (labels !== undefined && Object.hasOwn(labels, label)) return labels[label];
        }
        return undefined;
      },
    };
  }

  /** Endpoints that have this address, and network sets that hold it. */
  ownersOf(address: IpAddress): readonly Owner[] {
    let owners = this.#owners.get(address);
    if (owners === undefined) {
      owners = [...this.#endpointsAt(address), ...this.#setsAround(address)];
      this.#owners.set(address, owners);
    }
    return owners;
  }

  #endpointsAt(address: IpAddress): readonly Owner[] {
    return (this.#byAddress.get(hostCidr(address)) ?? []).map((endpoint) => ({
      name: endpointName(endpoint),
      labels: this.labelsOf(endpoint.value),
      ports: endpoint.value.ports,
    }));
  }

  #setsAround(address: IpAddress): readonly Owner[] {
    return this.#sets
      .filter(({ set }) => set.nets.some((net) => cidrContains(net, address)))
      .map(({ name, set }) => ({ name: `network set ${name}`, labels: this.labelsOf(set), ports: [] }));
  }

  /** What stands behind a service; readiness does not count. */
  backendsOf(service: { readonly namespace: string; readonly name: string }): readonly ServiceBackend[] {
    return this.#backends.get(`${service.namespace}/${service.name}`) ?? [];
  }

  #addNode(node: Resource): void {
    const { name, networks, addresses } = readNode(node, ignoreUnreadable);
    for (const network of [networks[4], networks[6], ...addresses.map((each) => each.network)])
      if (network !== undefined) this.#hostAddresses.set(network.address, name);
  }

  #addSlice(resource: Resource): void {
    const { namespace, service, endpoints, ports } = readEndpointSlice(resource, ignoreUnreadable);
    if (service === undefined) return;
    const backend: ServiceBackend = { addresses: endpoints.flatMap(({ addresses }) => addresses), ports };
    const name = `${namespace}/${service}`;
    this.#backends.set(name, [...(this.#backends.get(name) ?? []), backend]);
  }
}

/** Single addresses, as /32 and /128. */
function addressesOf(endpoint: Endpoint): readonly Cidr[] {
  if (endpoint.kind === "workload") return [...endpoint.value.ipv4Nets, ...endpoint.value.ipv6Nets];
  return [...endpoint.value.expectedIpv4Addrs, ...endpoint.value.expectedIpv6Addrs].map(hostCidr);
}

export function endpointName(endpoint: Endpoint): string {
  const { key } = endpoint;
  if (key.type === "hostEndpoint") return `host endpoint ${key.endpoint}`;
  return `workload ${key.workload}${key.endpoint === "eth0" ? "" : ` ${key.endpoint}`}`;
}

const compareText = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);

/** Tiers that exist by their order, then those that policies only name: these apply too, last. */
function placeTiers(known: ReadonlyMap<string, Tier>, policies: readonly PlacedPolicy[]): readonly PlacedTier[] {
  const ordered = [...known].map(([name, tier]) => ({ name, order: tier.order })).sort(compareTiers);
  const unknown = new Set(policies.map(({ policy }) => policy.tier).filter((name) => !known.has(name)));
  const names = [...ordered.map(({ name }) => name), ...[...unknown].sort()];
  return names.map((name) => ({
    name,
    defaultAction: known.get(name)?.defaultAction ?? "Deny",
    policies: policies
      .filter(({ policy }) => policy.tier === name)
      .sort((a, b) => comparePolicies({ ...a.key, order: a.policy.order }, { ...b.key, order: b.policy.order })),
  }));
}
