// Indexes the entries of a syncer for policy evaluation: the owners of an address, the labels of an endpoint including
// inherited ones, and the policies in evaluation order. It does not depend on IP sets or on how rules are programmed.
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

/** An endpoint or network set that has an address, and the labels and ports by which rules select it. */
export interface Owner {
  readonly name: string;
  readonly labels: LabelLookup;
  readonly ports: readonly EndpointPort[];
}

export interface OrderedPolicy {
  readonly key: PolicyKey;
  readonly policy: Policy;
  readonly staged: boolean;
}
export interface OrderedTier {
  readonly name: string;
  readonly defaultAction: "Deny" | "Pass";
  readonly policies: readonly OrderedPolicy[];
}

interface ServiceBackend {
  readonly addresses: readonly IpAddress[];
  readonly ports: readonly { readonly protocol: string; readonly port: number }[];
}

export class PolicyState {
  readonly workloads: Workload[] = [];
  readonly hosts: Host[] = [];
  /** In the order they are evaluated. */
  readonly tiers: readonly OrderedTier[];
  readonly #profileRules = new Map<string, ProfileRules>();
  readonly #profileLabels = new Map<string, Labels>();
  readonly #sets: { readonly name: string; readonly set: NetworkSet }[] = [];
  readonly #backends = new Map<string, ServiceBackend[]>(); // by namespace/service
  readonly #config = new Map<string, string>(); // by name, or host and name
  readonly #hostAddresses = new Map<IpAddress, string>();
  readonly #byAddress = new Map<Cidr, Endpoint[]>();
  readonly #owners = new Map<IpAddress, readonly Owner[]>(); // cache of ownersOf

  constructor(entries: Iterable<KeyValue>) {
    const tiers = new Map<string, Tier>();
    const policies: OrderedPolicy[] = [];
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
        default: // does not influence policy
      }
    }
    // Sorted, so that lookups do not depend on the order of the entries.
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
    this.tiers = orderTiers(tiers, policies);
  }

  /** Returns the rules of a profile, or undefined if the profile does not exist. */
  profile(name: string): ProfileRules | undefined {
    return this.#profileRules.get(name);
  }

  /** Returns the value of a Felix setting on the host; per-host configuration takes precedence. */
  setting<N extends FelixSettingName>(name: N, host: string): FelixConfig[N] {
    return felixSettingValue(name, this.#config.get(`${host}/${name}`) ?? this.#config.get(name));
  }

  /** Returns the host that has the address itself, as opposed to one of its workloads. */
  hostOf(address: IpAddress): string | undefined {
    return this.#hostAddresses.get(address);
  }

  /** Returns the addresses of a host, from its Node and the expected addresses of its host endpoints. */
  addressesOf(host: string): readonly IpAddress[] {
    return [...this.#hostAddresses].filter(([, name]) => name === host).map(([address]) => address);
  }

  workloadAt(address: IpAddress): Workload | undefined {
    return this.#byAddress.get(hostCidr(address))?.find((endpoint) => endpoint.kind === "workload");
  }

  /** The endpoint's own labels take precedence over those inherited from its profiles, in the order of the list. */
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

  /** Returns the endpoints that have the address, and the network sets that contain it. */
  ownersOf(address: IpAddress): readonly Owner[] {
    let owners = this.#owners.get(address);
    if (owners === undefined) {
      owners = [...this.#endpointsAt(address), ...this.#setsContaining(address)];
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

  #setsContaining(address: IpAddress): readonly Owner[] {
    return this.#sets
      .filter(({ set }) => set.nets.some((net) => cidrContains(net, address)))
      .map(({ name, set }) => ({ name: `network set ${name}`, labels: this.labelsOf(set), ports: [] }));
  }

  /** Returns the backends of a service, whether or not they are ready. */
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

/** Returns the endpoint's addresses as /32 and /128. */
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

/** Sorts existing tiers by their order. Tiers that policies refer to but that do not exist come last; they apply too. */
function orderTiers(known: ReadonlyMap<string, Tier>, policies: readonly OrderedPolicy[]): readonly OrderedTier[] {
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
