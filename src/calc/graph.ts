// The calculation graph: what a syncer says goes in one update at a time, what the dataplane must know comes out at
// flush. Synchronous, no clock, no I/O. The answer depends on the state alone, never on the way there.
//
//   endpoints, network sets ──────────────────────────┐
//   profile labels ───────┬──────────────────────────┐│
//   local endpoints ─┐    │                          ▼▼
//   policies ────────┼─► ActiveRules ─► RuleScanner ─► MemberIndex, ServiceIndex ◄── EndpointSlices
//   profile rules ───┘    │    │             │            │
//   LiveMigrations ◄──────┤    │             │            │ members
//   LocalBgpPeers  ◄──────┤    │             │            ▼
//   AmbientMesh    ◄──────┘    │             └──────► EventSequencer ──► DataplaneMessage
//         └─► PolicyResolver ◄─┘ ◄── tiers                ▲
//                   └─────────────────────────────────────┤
//   nodes, pools, blocks ─► RouteResolver, VtepResolver ──┤
//   nodes ─► HostDirectory;  pools ─► EncapsulationResolver┤
//   pools, WireGuard, BGP, services, profiles ─► Passthrough┘
//   settings, ready flag ─► ConfigBatcher ─► listener;  all ─► StatsCollector ─► listener
import { type Cidr, hostCidr } from "../lib/ip.ts";
import { unreachable } from "../lib/unreachable.ts";
import type {
  HostEndpoint,
  Key,
  NetworkSet,
  Policy,
  PolicyKey,
  Resource,
  ResourceKey,
  ValueOf,
  WorkloadEndpoint,
} from "../model/index.ts";
import { LocalBgpPeers } from "./cluster/bgp-peers.ts";
import { EncapsulationResolver, type EncapsulationSettings } from "./cluster/encapsulation.ts";
import { HostDirectory } from "./cluster/hosts.ts";
import { AMBIENT_SELECTOR, AMBIENT_SET, AmbientMesh } from "./cluster/istio.ts";
import { LiveMigrations } from "./cluster/live-migration.ts";
import { Passthrough } from "./cluster/passthrough.ts";
import { type ClusterStats, StatsCollector } from "./cluster/stats.ts";
import { ConfigBatcher, type ConfigLayers, type RawConfig } from "./config-batcher.ts";
import { type EndpointKey, endpointKeyText, policyId, policyKeyText, workloadEndpointId } from "./ids.ts";
import type { IpSetSpec, MemberListener } from "./ipsets/ip-set.ts";
import { MemberIndex } from "./ipsets/member-index.ts";
import { endpointAddresses, splitWholeSpaces } from "./ipsets/nets.ts";
import { ServiceIndex } from "./ipsets/service-index.ts";
import type { LabelIndexStats } from "./labels/index.ts";
import type { DataplaneMessage } from "./messages.ts";
import { ActiveRules } from "./policy/active-rules.ts";
import { PolicyResolver } from "./policy/resolver.ts";
import { RouteResolver } from "./routes/route-resolver.ts";
import { VtepResolver } from "./routes/vteps.ts";
import { RuleScanner } from "./rules/rule-scanner.ts";
import { EventSequencer } from "./sequencer.ts";

export interface GraphSettings extends EncapsulationSettings {
  readonly host: string;
  /** Hold back prefixes that lie inside others of their set. */
  readonly withoutOverlaps: boolean;
  /** Whether somebody needs routes, and from where they are known. */
  readonly routes: "none" | "ipam" | "workloads";
  readonly vteps: boolean;
  readonly ambientMesh: boolean;
  /** A FelixConfiguration's fields as raw settings. */
  readonly toRawConfig: (configuration: Resource) => RawConfig;
}

export interface GraphListener {
  onMessage(message: DataplaneMessage): void;
  /** The datastore's settings; may answer with messages of its own before anything else is said. */
  onConfig?(layers: ConfigLayers): void;
  onNotReady?(): void;
  onStats?(stats: ClusterStats): void;
  /** The policy needs more IP sets than one policy may have. It denies everything. */
  onPolicyTooLarge?(key: PolicyKey): void;
  /** An endpoint lists a profile nobody has defined; it is closed. */
  onProfileMissing?(name: string): void;
}

/** A key and what it now is, as a syncer says it. */
export type GraphUpdate<K extends Key = Key> = K extends Key
  ? { readonly key: K; readonly value: ValueOf<K> | undefined }
  : never;

/** What the value of an update is, once its key is known. */
type Given<K extends Key> = ValueOf<K> | undefined;

export interface GraphFigures {
  readonly endpoints: number;
  readonly localEndpoints: number;
  readonly activePolicies: number;
  readonly activeSelectors: number;
  readonly labelIndex: LabelIndexStats & {
    readonly items: number;
    readonly selectors: { readonly optimized: number; readonly unoptimized: number };
  };
}

export class CalculationGraph {
  readonly #settings: GraphSettings;
  readonly #listener: GraphListener;
  readonly #out = new EventSequencer();
  readonly #members: MemberIndex;
  readonly #serviceMembers: ServiceIndex;
  readonly #scanner: RuleScanner;
  readonly #activeRules: ActiveRules;
  readonly #resolver: PolicyResolver;
  readonly #migrations: LiveMigrations;
  readonly #bgpPeers: LocalBgpPeers;
  readonly #routes: RouteResolver | undefined;
  readonly #vteps: VtepResolver | undefined;
  readonly #hosts: HostDirectory;
  readonly #encapsulation: EncapsulationResolver;
  readonly #passthrough: Passthrough;
  readonly #config: ConfigBatcher;
  readonly #stats: StatsCollector;
  #isInSync = false;
  #saidInSync = false;

  constructor(settings: GraphSettings, listener: GraphListener) {
    this.#settings = settings;
    this.#listener = listener;
    const out = this.#out;
    const members: MemberListener = {
      onMemberAdded: (id, member) => out.ipSets.addMember(id, member),
      onMemberRemoved: (id, member) => out.ipSets.removeMember(id, member),
    };
    this.#members = new MemberIndex(members, settings);
    this.#serviceMembers = new ServiceIndex(members, settings);
    this.#scanner = new RuleScanner({
      onIpSetActive: (set) => this.#addSet(set),
      onIpSetInactive: (set) => this.#removeSet(set),
      onPolicyTooLarge: (key) => listener.onPolicyTooLarge?.(key),
      onPolicyActive: (key, policy) =>
        out.policies.update(policyKeyText(key), { type: "activePolicyUpdate", id: policyId(key), policy }),
      onPolicyInactive: (key) =>
        out.policies.remove(policyKeyText(key), { type: "activePolicyRemove", id: policyId(key) }),
      onProfileActive: (name, profile) => out.profiles.update(name, { type: "activeProfileUpdate", name, profile }),
      onProfileInactive: (name) => out.profiles.remove(name, { type: "activeProfileRemove", name }),
    });
    this.#activeRules = new ActiveRules({
      onPolicyActive: ({ id, key, policy }) => this.#scanner.setPolicy(id, key, policy),
      onPolicyInactive: ({ id, key }) => this.#scanner.deletePolicy(id, key),
      onProfileActive: (name, rules) => this.#scanner.setProfile(name, rules),
      onProfileInactive: (name) => this.#scanner.deleteProfile(name),
      onEndpointPoliciesChanged: ({ key, id }) => this.#resolver.markDirty(key, id),
      onProfileMissing: (name) => {
        if (this.#isInSync) listener.onProfileMissing?.(name);
      },
    });
    this.#resolver = new PolicyResolver(this.#activeRules, {
      onWorkloadEndpoint: (key, endpoint) =>
        out.endpoints.update(endpointKeyText(key), {
          type: "workloadEndpointUpdate",
          id: workloadEndpointId(key),
          endpoint,
        }),
      onHostEndpoint: (endpointId, endpoint) =>
        out.endpoints.update(endpointKeyText({ type: "hostEndpoint", host: settings.host, endpoint: endpointId }), {
          type: "hostEndpointUpdate",
          endpointId,
          endpoint,
        }),
      onEndpointGone: (key) =>
        out.endpoints.remove(
          endpointKeyText(key),
          key.type === "workloadEndpoint"
            ? { type: "workloadEndpointRemove", id: workloadEndpointId(key) }
            : { type: "hostEndpointRemove", endpointId: key.endpoint },
        ),
    });
    this.#migrations = new LiveMigrations(this.#activeRules, (key, liveMigration) =>
      this.#resolver.setComputed(key, { liveMigration }),
    );
    this.#bgpPeers = new LocalBgpPeers({
      host: settings.host,
      selections: this.#activeRules,
      say: (key, bgpPeer) => this.#resolver.setComputed(key, { bgpPeer }),
    });
    if (settings.ambientMesh) {
      const mesh = new AmbientMesh((key, is) =>
        this.#resolver.setComputed(key, { isIstioAmbient: is ? true : undefined }),
      );
      this.#addSet(AMBIENT_SET);
      this.#activeRules.addSelection(AMBIENT_SELECTOR, mesh);
    }
    if (settings.routes !== "none")
      this.#routes = new RouteResolver(settings.host, {
        onRoute: (route) => out.routes.update(route.dst, route),
        onRouteGone: (dst) => out.routes.remove(dst, { type: "routeRemove", dst }),
      });
    if (settings.vteps)
      this.#vteps = new VtepResolver({
        onVtep: (vtep) => out.vteps.update(vtep.node, vtep),
        onVtepGone: (node) => out.vteps.remove(node, { type: "vtepRemove", node }),
      });
    this.#hosts = new HostDirectory({
      onHost: (host) => out.hosts.update(host.hostname, host),
      onHostGone: (hostname, ipv4Addr) =>
        out.hosts.remove(hostname, { type: "hostMetadataRemove", hostname, ipv4Addr }),
    });
    this.#encapsulation = new EncapsulationResolver(settings, (message) => out.setEncapsulation(message));
    this.#passthrough = new Passthrough(out);
    this.#config = new ConfigBatcher({
      host: settings.host,
      toRaw: settings.toRawConfig,
      listener: {
        onConfig: (layers) => out.sayFirst(() => listener.onConfig?.(layers)),
        onNotReady: () => out.sayFirst(() => listener.onNotReady?.()),
      },
    });
    this.#stats = new StatsCollector({
      counts: () => ({
        policies: this.#activeRules.counts.policies,
        profiles: this.#activeRules.counts.profiles,
        tiers: this.#resolver.tierCount,
      }),
      say: (stats) => listener.onStats?.(stats),
    });
  }

  get figures(): GraphFigures {
    const { counts } = this.#activeRules;
    return {
      endpoints: this.#members.itemCount,
      localEndpoints: counts.endpoints,
      activePolicies: counts.activePolicies,
      activeSelectors: this.#scanner.setCount,
      labelIndex: {
        ...this.#members.stats,
        items: this.#members.itemCount,
        selectors: this.#members.selectorCounts,
      },
    };
  }

  /** The syncer has given everything there is. Later falls back change nothing. */
  setInSync(): void {
    if (this.#isInSync) return;
    this.#isInSync = true;
    this.#resolver.setInSync();
    this.#encapsulation.setInSync();
    this.#config.setInSync();
    this.#activeRules.reportMissingProfiles();
  }

  /** Says what changed since the last flush, in an order the dataplane can follow. */
  flush(): void {
    this.#resolver.flush();
    this.#routes?.flush();
    this.#config.flush();
    this.#out.flush((message) => this.#listener.onMessage(message));
    if (!this.#isInSync) return;
    this.#stats.flush();
    if (this.#saidInSync) return;
    this.#saidInSync = true;
    this.#listener.onMessage({ type: "inSync" });
  }

  update({ key, value }: GraphUpdate): void {
    switch (key.type) {
      case "workloadEndpoint":
        return this.#setWorkload(key, value as Given<typeof key>);
      case "hostEndpoint":
        return this.#setHostEndpoint(key, value as Given<typeof key>);
      case "networkSet":
        return this.#setNetworkSet(`n ${key.name}`, value as Given<typeof key>);
      case "policy":
        return this.#setPolicy(key, value as Given<typeof key>);
      case "profileRules":
        return this.#activeRules.setProfileRules(key.name, value as Given<typeof key>);
      case "profileLabels":
        this.#activeRules.setProfileLabels(key.name, value as Given<typeof key>);
        return this.#members.setProfileLabels(key.name, value as Given<typeof key>);
      case "tier":
        return this.#resolver.setTier(key.name, value as Given<typeof key>);
      case "pool":
        this.#passthrough.setPool(key.cidr, value as Given<typeof key>);
        this.#routes?.setPool(key.cidr, value as Given<typeof key>);
        return this.#encapsulation.setPool(key.cidr, value as Given<typeof key>);
      case "block":
        if (this.#settings.routes === "ipam") this.#routes?.setBlock(key.cidr, value as Given<typeof key>);
        return;
      case "wireguard":
        return this.#passthrough.setWireguard(key.host, value as Given<typeof key>);
      case "globalConfig":
        return this.#config.setGlobal(key.name, value as Given<typeof key>);
      case "hostConfig":
        this.#stats.setHostThing(key.host, `config ${key.host} ${key.name}`, value !== undefined);
        this.#vteps?.setHostConfig(key.host, key.name, value as Given<typeof key>);
        return this.#config.setHost(key.host, key.name, value as Given<typeof key>);
      case "ready":
        return this.#config.setReady((value as Given<typeof key>) ?? false);
      case "resource":
        return this.#setResource(key, value as Given<typeof key>);
      case "hostIp":
      case "blockAffinity":
      case "ipamHandle":
      case "ipamConfig":
      case "ipamHost":
      case "felixStatus":
      case "workloadStatus":
      case "hostEndpointStatus":
      case "bgpGlobalConfig":
      case "bgpHostConfig":
      case "bgpPeer":
        return; // nothing of the agent's calculations depends on these
      default:
        return unreachable(key);
    }
  }

  #setNetworkSet(id: string, set: NetworkSet | undefined): void {
    if (set === undefined) this.#members.deleteItem(id);
    else this.#members.setItem(id, { ...set, nets: splitWholeSpaces(set.nets), ports: [] });
  }

  #setPolicy(key: PolicyKey, policy: Policy | undefined): void {
    if (policy === undefined) this.#activeRules.deletePolicy(key);
    else this.#activeRules.setPolicy(key, policy);
  }

  #setResource(key: ResourceKey, resource: Resource | undefined): void {
    switch (key.kind) {
      case "Node":
        this.#stats.setHostThing(key.name, `node ${key.name}`, resource !== undefined);
        this.#hosts.setNode(key.name, resource);
        this.#routes?.setNode(key.name, resource);
        this.#vteps?.setNode(key.name, resource);
        this.#bgpPeers.setNode(key.name, resource);
        this.#config.setNode(key.name, resource);
        return;
      case "FelixConfiguration":
        return this.#config.setConfiguration(key.name, resource);
      case "Profile":
        return this.#passthrough.setProfile(key.name, resource);
      case "BGPConfiguration":
        return this.#passthrough.setBgpConfiguration(key.name, resource);
      case "BGPPeer":
        return this.#bgpPeers.setPeer(key.name, resource);
      case "LiveMigration":
        return this.#migrations.setMigration(key, resource);
      case "KubernetesService":
        return this.#passthrough.setService(key, resource);
      case "KubernetesEndpointSlice":
        return this.#serviceMembers.setSlice(key, resource);
      default:
        return; // other kinds come in another form, or concern other programs
    }
  }

  #setWorkload(key: EndpointKey & { type: "workloadEndpoint" }, value: WorkloadEndpoint | undefined): void {
    const id = endpointKeyText(key);
    const isLocal = key.host === this.#settings.host;
    if (isLocal) this.#migrations.setWorkload(key, value !== undefined);
    this.#setEndpoint(key, id, value, value === undefined ? [] : endpointAddresses(value.ipv4Nets, value.ipv6Nets));
    if (isLocal || this.#settings.routes === "workloads") this.#routes?.setWorkload(id, key.host, value);
  }

  #setHostEndpoint(key: EndpointKey & { type: "hostEndpoint" }, value: HostEndpoint | undefined): void {
    const nets = value === undefined ? [] : [...value.expectedIpv4Addrs, ...value.expectedIpv6Addrs].map(hostCidr);
    this.#setEndpoint(key, endpointKeyText(key), value, nets);
  }

  #setEndpoint(
    key: EndpointKey,
    id: string,
    value: WorkloadEndpoint | HostEndpoint | undefined,
    nets: readonly Cidr[],
  ): void {
    if (key.host === this.#settings.host) {
      const before = this.#activeRules.endpoint(id)?.value;
      if (value === undefined) this.#activeRules.deleteEndpoint(id);
      else this.#activeRules.setEndpoint(key, id, value);
      if (!Bun.deepEquals(before, value, true)) this.#resolver.markDirty(key, id);
    }
    if (value === undefined) {
      if (this.#members.deleteItem(id)) this.#stats.countEndpoint(key.type, key.host, -1);
    } else if (
      this.#members.setItem(id, { labels: value.labels, profileIds: value.profileIds, nets, ports: value.ports })
    )
      this.#stats.countEndpoint(key.type, key.host, 1);
  }

  #addSet(set: IpSetSpec): void {
    this.#out.ipSets.add(set.id, set.type);
    const { content } = set;
    if (content.kind === "service") this.#serviceMembers.addSet({ ...set, content });
    else this.#members.addSet({ ...set, content });
  }

  #removeSet(set: IpSetSpec): void {
    if (set.content.kind === "service") this.#serviceMembers.removeSet(set.id);
    else this.#members.removeSet(set.id);
    this.#out.ipSets.remove(set.id);
  }
}
