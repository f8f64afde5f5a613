// Calculates the dataplane messages for one host from the contents of the datastore.
//
// `update` receives a syncer's updates; `flush` emits the resulting messages. The graph is synchronous, without clock or
// I/O. Its output depends only on the current state of the datastore, not on the order of updates.
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
//   nodes ─► HostMetadataEmitter ─────────────────────────┤
//   pools ─► EncapsulationResolver ───────────────────────┤
//   pools, WireGuard, BGP, services, profiles ─► Passthrough (same sequencer)
//   settings, ready flag ─► ConfigBatcher ─► listener;  all ─► StatsCollector ─► listener
import { type Cidr, hostCidr } from "../lib/ip/ip.ts";
import { unreachable } from "../lib/unreachable.ts";
import {
  type HostEndpoint,
  ignoreUnreadable,
  type Key,
  type NetworkSet,
  type Node,
  type OnUnreadable,
  type Policy,
  type PolicyKey,
  readBgpConfiguration,
  readBgpPeer,
  readEndpointSlice,
  readLiveMigration,
  readNode,
  readProfileLabels,
  readService,
  type Resource,
  type ResourceKey,
  type ValueOf,
  type WorkloadEndpoint,
} from "../model/index.ts";
import { LocalBgpPeers } from "./cluster/bgp-peers.ts";
import { EncapsulationResolver, type EncapsulationSettings } from "./cluster/encapsulation.ts";
import { HostMetadataEmitter } from "./cluster/hosts.ts";
import { AMBIENT_SELECTOR, AMBIENT_SET, AmbientMesh } from "./cluster/istio.ts";
import { LiveMigrations } from "./cluster/live-migration.ts";
import { Passthrough } from "./cluster/passthrough.ts";
import { type ClusterStats, StatsCollector } from "./cluster/stats.ts";
import { ConfigBatcher, type ConfigLayers, type RawConfig } from "./config-batcher.ts";
import { type EndpointKey, endpointKeyText, policyId, policyKeyText, workloadEndpointId } from "./ids.ts";
import { usedPorts } from "./ipsets/contribution.ts";
import type { IpSetSpec, MemberListener } from "./ipsets/ip-set.ts";
import { MemberIndex } from "./ipsets/member-index.ts";
import { endpointAddresses, splitZeroLengthPrefixes } from "./ipsets/nets.ts";
import { ServiceIndex } from "./ipsets/service-index.ts";
import type { LabelIndexStats } from "./labels/index.ts";
import type { DataplaneMessage } from "./messages.ts";
import { ActiveRules } from "./policy/active-rules.ts";
import { PolicyResolver } from "./policy/resolver.ts";
import { RouteResolver } from "./routes/route-resolver.ts";
import { VtepResolver } from "./routes/vteps.ts";
import type { LimitState } from "./rules/namespace-usage.ts";
import { RuleScanner, type RuleScannerListener } from "./rules/rule-scanner.ts";
import { EventSequencer } from "./sequencer.ts";

export interface GraphSettings extends EncapsulationSettings {
  readonly host: string;
  /** Omit members of an IP set that lie inside a wider prefix of the same set. */
  readonly omitNestedPrefixes: boolean;
  /** The source of routes: none are calculated, from IPAM blocks, or from all workload endpoints. */
  readonly routes: "none" | "ipam" | "workloads";
  readonly vteps: boolean;
  readonly ambientMesh: boolean;
  /** Converts the fields of a FelixConfiguration to raw settings. */
  readonly toRawConfig: (configuration: Resource) => RawConfig;
}

export interface GraphListener {
  onMessage(message: DataplaneMessage): void;
  /** The datastore's settings, before any message of the same flush, so that the listener can send a `configUpdate` first. */
  onConfig?(layers: ConfigLayers): void;
  onNotReady?(): void;
  onStats?(stats: ClusterStats): void;
  /** The policy needs more IP sets than one policy may have. It denies everything. */
  onPolicyTooLarge?(key: PolicyKey): void;
  /** The policies of a namespace exceed a limit and deny everything, or are within the limits again. */
  onNamespaceLimit?(namespace: string, state: LimitState): void;
  /** A local endpoint lists a profile that does not exist. Traffic that reaches the profile is denied. */
  onProfileMissing?(name: string): void;
}

/** A key with its new value; undefined if the key was deleted. */
export type GraphUpdate<K extends Key = Key> = K extends Key
  ? { readonly key: K; readonly value: ValueOf<K> | undefined }
  : never;

/** The type of an update's value for a key of type `K`. */
type UpdateValue<K extends Key> = ValueOf<K> | undefined;

export interface GraphStatistics {
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
  readonly #hosts: HostMetadataEmitter;
  readonly #encapsulation: EncapsulationResolver;
  readonly #passthrough: Passthrough;
  readonly #config: ConfigBatcher;
  readonly #stats: StatsCollector;
  #isInSync = false;
  #isInSyncEmitted = false;

  constructor(settings: GraphSettings, listener: GraphListener) {
    this.#settings = settings;
    this.#listener = listener;
    const out = this.#out;
    const members: MemberListener = {
      onMemberAdded: (id, member) => out.ipSets.addMember(id, member),
      onMemberRemoved: (id, member) => out.ipSets.removeMember(id, member),
    };
    this.#members = new MemberIndex(members, settings, (id) => this.#scanner.onMemberCount(id));
    this.#serviceMembers = new ServiceIndex(members, settings, (id) => this.#scanner.onMemberCount(id));
    const scannerListener: RuleScannerListener = {
      onIpSetUsed: (set) => this.#countSet(set),
      onIpSetUnused: ({ id, content }) =>
        content.kind === "service" ? this.#serviceMembers.removeSet(id) : this.#members.removeSet(id),
      countStep: ({ id, content }) => content.kind === "service" || this.#members.countStep(id),
      onIpSetActive: (set) => this.#fillSet(set),
      onIpSetInactive: (set) => this.#emptySet(set),
      fillStep: (set) => this.#fillStep(set),
      onPolicyTooLarge: (key) => listener.onPolicyTooLarge?.(key),
      onNamespaceLimit: (namespace, state) => listener.onNamespaceLimit?.(namespace, state),
      onPolicyActive: (key, policy) =>
        out.policies.update(policyKeyText(key), { type: "activePolicyUpdate", id: policyId(key), policy }),
      onPolicyInactive: (key) =>
        out.policies.remove(policyKeyText(key), { type: "activePolicyRemove", id: policyId(key) }),
      onProfileActive: (name, profile) => out.profiles.update(name, { type: "activeProfileUpdate", name, profile }),
      onProfileInactive: (name) => out.profiles.remove(name, { type: "activeProfileRemove", name }),
    };
    this.#scanner = new RuleScanner(scannerListener, {
      all: (id) => this.#members.memberCount(id) + this.#serviceMembers.memberCount(id),
      foreign: (id, namespace) =>
        this.#members.foreignCount(id, namespace) + this.#serviceMembers.foreignCount(id, namespace),
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
      onEndpointRemove: (key) =>
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
      onPeerChanged: (key, bgpPeer) => this.#resolver.setComputed(key, { bgpPeer }),
    });
    if (settings.ambientMesh) {
      const mesh = new AmbientMesh((key, isAmbient) =>
        this.#resolver.setComputed(key, { isIstioAmbient: isAmbient ? true : undefined }),
      );
      this.#countSet(AMBIENT_SET); // no endpoint is known yet, so the set is complete at once
      this.#fillSet(AMBIENT_SET);
      this.#fillStep(AMBIENT_SET);
      this.#activeRules.addSelection(AMBIENT_SELECTOR, mesh);
    }
    if (settings.routes !== "none")
      this.#routes = new RouteResolver(settings.host, {
        onRouteUpdate: (route) => out.routes.update(route.dst, route),
        onRouteRemove: (dst) => out.routes.remove(dst, { type: "routeRemove", dst }),
      });
    if (settings.vteps)
      this.#vteps = new VtepResolver({
        onVtepUpdate: (vtep) => out.vteps.update(vtep.node, vtep),
        onVtepRemove: (node) => out.vteps.remove(node, { type: "vtepRemove", node }),
      });
    this.#hosts = new HostMetadataEmitter({
      onHostUpdate: (host) => out.hosts.update(host.hostname, host),
      onHostRemove: (hostname, ipv4Addr) =>
        out.hosts.remove(hostname, { type: "hostMetadataRemove", hostname, ipv4Addr }),
    });
    this.#encapsulation = new EncapsulationResolver(settings, (message) => out.setEncapsulation(message));
    this.#passthrough = new Passthrough(out);
    this.#config = new ConfigBatcher({
      host: settings.host,
      toRaw: settings.toRawConfig,
      listener: {
        onConfig: (layers) => out.beforeMessages(() => listener.onConfig?.(layers)),
        onNotReady: () => out.beforeMessages(() => listener.onNotReady?.()),
      },
    });
    this.#stats = new StatsCollector({
      counts: () => ({
        policies: this.#activeRules.counts.policies,
        profiles: this.#activeRules.counts.profiles,
        tiers: this.#resolver.tierCount,
      }),
      emit: (stats) => listener.onStats?.(stats),
    });
  }

  get statistics(): GraphStatistics {
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

  /** The syncer has sent the complete state. If it loses sync later, the graph stays in sync. */
  setInSync(): void {
    if (this.#isInSync) return;
    this.#isInSync = true;
    this.#resolver.setInSync();
    this.#encapsulation.setInSync();
    this.#config.setInSync();
    this.#activeRules.reportMissingProfiles();
  }

  /**
   * Does the work that precedes a flush. After a change of large policies, this may take seconds. The caller can split the
   * work with `isTimeUp`, which is called about once per millisecond, and apply other updates between the parts.
   * @returns false if work is left
   */
  settle(isTimeUp: () => boolean = () => false): boolean {
    this.#scanner.collectResized();
    for (;;) {
      const didMembers = this.#members.step();
      const didServices = this.#serviceMembers.step();
      const didRules = this.#scanner.step();
      if (!didMembers && !didServices && !didRules) return true;
      if (!isTimeUp()) continue;
      // Before the first flush nobody waits, and sets that are filled at the same time need more memory.
      if (this.#isInSyncEmitted) this.#scanner.nextTurn();
      return false;
    }
  }

  /** Emits the changes since the last flush, ordered as described in messages.ts. */
  flush(): void {
    this.settle();
    this.flushSettled();
    if (!this.#isInSync || this.#isInSyncEmitted) return;
    this.#isInSyncEmitted = true;
    this.#listener.onMessage({ type: "inSync" });
  }

  /**
   * Emits the changes that are settled. Policies that are not, and endpoints with such policies, stay in the dataplane as
   * they are. Must not be called before the first flush: the dataplane would take an incomplete state for complete.
   */
  flushSettled(): void {
    this.#resolver.flush(this.#scanner);
    const { policies, profiles } = this.#resolver.heldReferences();
    this.#scanner.removeDeleted(({ kind, id }) => (kind === "policy" ? policies : profiles).has(id));
    this.#routes?.flush();
    this.#config.flush();
    this.#out.flush((message) => this.#listener.onMessage(message));
    if (this.#isInSync) this.#stats.flush();
  }

  /** Returns true if the latest version of a policy or local endpoint was not emitted yet. */
  isHeld(key: PolicyKey | EndpointKey): boolean {
    return key.type === "policy"
      ? !this.#scanner.isPolicySettled(policyKeyText(key))
      : this.#resolver.isHeld(endpointKeyText(key));
  }

  update({ key, value }: GraphUpdate): void {
    switch (key.type) {
      case "workloadEndpoint":
        return this.#setWorkload(key, value as UpdateValue<typeof key>);
      case "hostEndpoint":
        return this.#setHostEndpoint(key, value as UpdateValue<typeof key>);
      case "networkSet":
        return this.#setNetworkSet(key.name, value as UpdateValue<typeof key>);
      case "policy":
        return this.#setPolicy(key, value as UpdateValue<typeof key>);
      case "profileRules":
        return this.#activeRules.setProfileRules(key.name, value as UpdateValue<typeof key>);
      case "profileLabels":
        this.#activeRules.setProfileLabels(key.name, value as UpdateValue<typeof key>);
        return this.#members.setProfileLabels(key.name, value as UpdateValue<typeof key>);
      case "tier":
        return this.#resolver.setTier(key.name, value as UpdateValue<typeof key>);
      case "pool":
        this.#passthrough.setPool(key.cidr, value as UpdateValue<typeof key>);
        this.#routes?.setPool(key.cidr, value as UpdateValue<typeof key>);
        return this.#encapsulation.setPool(key.cidr, value as UpdateValue<typeof key>);
      case "block":
        if (this.#settings.routes === "ipam") this.#routes?.setBlock(key.cidr, value as UpdateValue<typeof key>);
        return;
      case "wireguard":
        return this.#passthrough.setWireguard(key.host, value as UpdateValue<typeof key>);
      case "globalConfig":
        return this.#config.setGlobal(key.name, value as UpdateValue<typeof key>);
      case "hostConfig":
        this.#stats.setHostReference(key.host, `config ${key.host} ${key.name}`, value !== undefined);
        this.#vteps?.setHostConfig(key.host, key.name, value as UpdateValue<typeof key>);
        return this.#config.setHost(key.host, key.name, value as UpdateValue<typeof key>);
      case "ready":
        return this.#config.setReady((value as UpdateValue<typeof key>) ?? false);
      case "resource":
        return this.#setResource(key, value as UpdateValue<typeof key>);
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
        return; // not an input of any calculation
      default:
        return unreachable(key);
    }
  }

  /** @param name `namespace/name`, or the name of a global network set */
  #setNetworkSet(name: string, set: NetworkSet | undefined): void {
    const id = `n ${name}`;
    if (set === undefined) {
      this.#members.deleteItem(id);
      return;
    }
    const nets = splitZeroLengthPrefixes(set.nets);
    const slash = name.indexOf("/");
    const namespace = slash < 0 ? {} : { namespace: name.slice(0, slash) };
    this.#members.setItem(id, { ...set, ...namespace, nets, ports: [] });
  }

  #setPolicy(key: PolicyKey, policy: Policy | undefined): void {
    if (policy === undefined) this.#activeRules.deletePolicy(key);
    else this.#activeRules.setPolicy(key, policy);
  }

  #setResource(key: ResourceKey, resource: Resource | undefined): void {
    switch (key.kind) {
      case "Node":
        return this.#setNode(key.name, readIfSet(readNode, resource));
      case "FelixConfiguration":
        return this.#config.setConfiguration(key.name, resource);
      case "Profile":
        return this.#passthrough.setProfile(key.name, readIfSet(readProfileLabels, resource));
      case "BGPConfiguration":
        return this.#passthrough.setBgpConfiguration(key.name, readIfSet(readBgpConfiguration, resource));
      case "BGPPeer":
        return this.#bgpPeers.setPeer(key.name, readIfSet(readBgpPeer, resource));
      case "LiveMigration":
        return this.#migrations.setMigration(key, readIfSet(readLiveMigration, resource));
      case "KubernetesService":
        return this.#passthrough.setService(key, readIfSet(readService, resource));
      case "KubernetesEndpointSlice":
        return this.#serviceMembers.setSlice(key, readIfSet(readEndpointSlice, resource));
      default:
        return; // other kinds arrive under their own key types, or only other programs use them
    }
  }

  #setNode(name: string, node: Node | undefined): void {
    this.#stats.setHostReference(name, `node ${name}`, node !== undefined);
    this.#hosts.setNode(name, node);
    this.#routes?.setNode(name, node);
    this.#vteps?.setNode(name, node);
    this.#bgpPeers.setNode(name, node);
    this.#config.setNode(name, node);
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
    const ports = key.type === "workloadEndpoint" ? usedPorts(value?.ports ?? []) : (value?.ports ?? []);
    if (value === undefined) {
      if (this.#members.deleteItem(id)) this.#stats.countEndpoint(key.type, key.host, -1);
    } else if (this.#members.setItem(id, { labels: value.labels, profileIds: value.profileIds, nets, ports }))
      this.#stats.countEndpoint(key.type, key.host, 1);
  }

  #countSet(set: IpSetSpec): void {
    const { content } = set;
    if (content.kind === "service") this.#serviceMembers.addSet({ ...set, content });
    else this.#members.addSet({ ...set, content });
  }

  #fillSet({ id, type, content }: IpSetSpec): void {
    this.#out.ipSets.add(id, type);
    this.#out.ipSets.setIncomplete(id);
    if (content.kind === "service") this.#serviceMembers.fill(id);
    else this.#members.fill(id);
  }

  #fillStep({ id, content }: IpSetSpec): boolean {
    const isComplete = content.kind === "service" ? this.#serviceMembers.fillStep(id) : this.#members.fillStep(id);
    if (isComplete) this.#out.ipSets.setComplete(id);
    return isComplete;
  }

  #emptySet({ id, content }: IpSetSpec): void {
    if (content.kind === "service") this.#serviceMembers.empty(id);
    else this.#members.empty(id);
    this.#out.ipSets.remove(id);
  }
}

/** Resources with fields of wrong types were rejected when they entered the program. */
const readIfSet = <T>(
  read: (resource: Resource, onUnreadable: OnUnreadable) => T,
  resource: Resource | undefined,
): T | undefined => (resource === undefined ? undefined : read(resource, ignoreUnreadable));
