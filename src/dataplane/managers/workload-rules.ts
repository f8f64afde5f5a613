// Keeps the chains of workload endpoints, and the dispatch chains that lead to them. Packets of an interface with a workload
// prefix but without an endpoint are dropped, also before Felix has received the endpoint.
import type { ProtoWorkloadEndpoint } from "../../calc/index.ts";
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Manager } from "../loop/manager.ts";
import type { RulesConfig } from "../rules/config.ts";
import { denyAction, endpointChain, type EndpointChainInput } from "../rules/endpoint-chains.ts";
import type { FamilyRules } from "../rules/rule-table.ts";
import type { ChainNames, Direction, EndpointChainKind } from "../rules/names.ts";
import { accept, chain, inInterface, isNet, type Rule } from "../rules/rule.ts";
import type { ChainPlacer } from "./chain-placer.ts";
import type { ActiveWorkload, EndpointRegistry } from "./endpoint-registry.ts";
import type { PolicySelectors } from "./policy-selectors.ts";
import { planTiers } from "./tier-chains.ts";

export interface EndpointRulesDeps {
  readonly config: RulesConfig;
  readonly names: ChainNames;
  readonly families: readonly FamilyRules[];
  readonly registry: EndpointRegistry;
  readonly selectors: PolicySelectors;
  readonly placer: ChainPlacer;
}

export class WorkloadRules implements Manager {
  readonly name = "workload rules";
  readonly #deps: EndpointRulesDeps;
  readonly #dirty: Set<string>;
  readonly #targets = new Set<string>();
  /** Source prefixes that a workload may use although no route leads to it, by interface. */
  readonly #spoofing = new Map<string, readonly Cidr[]>();
  #isDispatchStale = true;
  #isSpoofingStale = true;

  constructor(deps: EndpointRulesDeps) {
    this.#deps = deps;
    this.#dirty = deps.registry.watchWorkloads();
  }

  onUpdate(): void {} // the registry stores the messages

  apply(): void {
    const { registry, selectors } = this.#deps;
    if (selectors.hasChanges)
      for (const [interfaceName, { endpoint }] of registry.activeWorkloads)
        if (selectors.touches(endpoint.tiers)) this.#dirty.add(interfaceName);
    for (const interfaceName of this.#dirty) this.#applyWorkload(interfaceName);
    this.#dirty.clear();
    if (this.#isDispatchStale) this.#applyDispatch();
    if (this.#isSpoofingStale) this.#applySpoofing();
  }

  #applyWorkload(interfaceName: string): void {
    const { config, registry, placer } = this.#deps;
    const workload = registry.activeWorkloads.get(interfaceName);
    const owner = `workload ${interfaceName}`;
    this.#setSpoofing(interfaceName, workload?.endpoint.allowSpoofedSourcePrefixes ?? []);
    if (workload === undefined) {
      placer.remove(owner);
      if (this.#targets.delete(interfaceName)) this.#isDispatchStale = true;
      return;
    }
    const inputs = (["ingress", "egress"] as const).map((direction) =>
      this.#input(interfaceName, workload.endpoint, direction),
    );
    placer.place(
      owner,
      inputs.map(({ input }) => ({ tableName: "filter", chain: endpointChain(config, input) })),
      inputs.flatMap(({ groups }) => groups),
    );
    if (this.#targets.has(interfaceName)) return;
    this.#targets.add(interfaceName);
    this.#isDispatchStale = true;
  }

  #input(interfaceName: string, endpoint: ActiveWorkload["endpoint"], direction: Direction) {
    const { config, names, selectors } = this.#deps;
    const plan = planTiers(names, endpoint.tiers, direction, selectors.of);
    const input: EndpointChainInput = {
      name: names.endpoint(direction === "ingress" ? "toWorkload" : "fromWorkload", interfaceName),
      direction,
      use: "normal",
      isWorkload: true,
      adminUp: endpoint.state === "active",
      tiers: plan.tiers,
      profileChains: endpoint.profileIds.map((id) => names.profile(direction, id)),
      allow: config.filterAllow,
      ...qosLimits(endpoint, direction),
    };
    return { input, groups: plan.groups };
  }

  #applyDispatch(): void {
    this.#isDispatchStale = false;
    const { config, names, families } = this.#deps;
    const otherwise: Rule[] = [{ action: denyAction(config), comments: ["Unknown interface"] }];
    const sorted = [...this.#targets].sort();
    const targets = (kind: EndpointChainKind) => new Map(sorted.map((name) => [name, names.endpoint(kind, name)]));
    const dispatch = { kind: "dispatch", otherwise } as const;
    const from = {
      ...dispatch,
      name: "cali-from-wl-dispatch",
      direction: "in",
      targets: targets("fromWorkload"),
    } as const;
    const to = { ...dispatch, name: "cali-to-wl-dispatch", direction: "out", targets: targets("toWorkload") } as const;
    for (const { tables } of families) {
      tables.filter.setChain(from);
      tables.filter.setChain(to);
    }
  }

  #setSpoofing(interfaceName: string, prefixes: readonly Cidr[]): void {
    const before = this.#spoofing.get(interfaceName) ?? [];
    if (before.length === prefixes.length && before.every((prefix, i) => prefix === prefixes[i])) return;
    if (prefixes.length === 0) this.#spoofing.delete(interfaceName);
    else this.#spoofing.set(interfaceName, prefixes);
    this.#isSpoofingStale = true;
  }

  #applySpoofing(): void {
    this.#isSpoofingStale = false;
    const sorted = [...this.#spoofing].sort(([a], [b]) => (a < b ? -1 : 1));
    for (const { tables, version } of this.#deps.families) {
      const rules = sorted.flatMap(([name, prefixes]) =>
        prefixes
          .filter((prefix) => prefix.includes(":") === (version === 6))
          .map((prefix): Rule => ({ match: [inInterface(name), isNet("source", prefix)], action: accept })),
      );
      tables.raw.setChain(chain("cali-rpf-skip", rules));
    }
  }
}

function qosLimits(
  endpoint: ProtoWorkloadEndpoint,
  direction: Direction,
): Pick<EndpointChainInput, "packetRate" | "maxConnections"> {
  const qos = endpoint.qosControls;
  if (qos === undefined) return {};
  const rate = direction === "ingress" ? qos.ingressPacketRate : qos.egressPacketRate;
  const burst = direction === "ingress" ? qos.ingressPacketBurst : qos.egressPacketBurst;
  const connections = direction === "ingress" ? qos.ingressMaxConnections : qos.egressMaxConnections;
  return {
    ...(rate === undefined || rate === 0 ? {} : { packetRate: { packetsPerSecond: rate, burst: burst ?? 5 } }),
    ...(connections === undefined || connections === 0 ? {} : { maxConnections: connections }),
  };
}
