// Creates the managers that set chains and IP sets.
import type { Cidr } from "../lib/ip/ip.ts";
import type { Logger } from "../lib/log/log.ts";
import type { Manager } from "./loop/manager.ts";
import { ArpRules } from "./managers/arp-rules.ts";
import { ChainPlacer } from "./managers/chain-placer.ts";
import { EgressDscp } from "./managers/egress-dscp.ts";
import { EndpointRegistry } from "./managers/endpoint-registry.ts";
import { HostRules } from "./managers/host-rules.ts";
import { KnownSources } from "./managers/known-sources.ts";
import { IpvsRules } from "./managers/ipvs-rules.ts";
import { FloatingIps, OutgoingNat } from "./managers/nat-rules.ts";
import { OffloadExclusions } from "./managers/offload-exclusions.ts";
import { PolicyManager } from "./managers/policy-manager.ts";
import { PolicySelectors } from "./managers/policy-selectors.ts";
import { ServiceLoopPrevention } from "./managers/service-loop-prevention.ts";
import {
  AllHostsSet,
  isNetworkPool,
  IstioSet,
  PolicySetsManager,
  PoolSet,
  ThisHostSet,
  VxlanHostsSet,
} from "./managers/set-managers.ts";
import { WorkloadRules } from "./managers/workload-rules.ts";
import { isWorkloadInterface, type RulesConfig, SET, vxlanEnabledFor } from "./rules/config.ts";
import { installStaticChains } from "./rules/install-static-chains.ts";
import type { RuleTable, FamilyRules } from "./rules/rule-table.ts";
import { SetNameOwners } from "./rules/name-owners.ts";
import { ChainNames, NFT_CHAIN_LENGTH } from "./rules/names.ts";

export interface RuleManagersOptions {
  readonly config: RulesConfig;
  readonly families: readonly FamilyRules[];
  readonly chainNameLimit: number;
  readonly hostname: string;
  readonly externalNodes: readonly Cidr[];
  readonly floatingIps: boolean;
  readonly logger: Logger;
  /** Returns the alias of an interface. By default no interface has one. */
  readonly aliasOf?: (interfaceName: string) => string | undefined;
  /** The table for ARP packets. */
  readonly arp?: RuleTable;
  /** True for interfaces that never belong to a host endpoint. */
  readonly isExcludedInterface?: (name: string) => boolean;
}

export interface RuleManagers {
  readonly registry: EndpointRegistry;
  /** In the order in which they receive messages. */
  readonly managers: readonly Manager[];
}

export function createRuleManagers(options: RuleManagersOptions): RuleManagers {
  const { config, families, externalNodes } = options;
  const names = new ChainNames(options.chainNameLimit);
  const isWorkload = (name: string) => isWorkloadInterface(config, name);
  const isExcluded = (name: string) => isWorkload(name) || options.isExcludedInterface?.(name) === true;
  const registry = new EndpointRegistry(isExcluded, options);
  const selectors = new PolicySelectors();
  const placer = new ChainPlacer(config, families);
  const endpointDeps = { config, names, families, registry, selectors, placer };
  const sets = families.map((family) => family.sets);
  const setsOf = (version: 4 | 6) => sets.filter((s) => s.version === version);
  installStaticChains(config, families);

  const setOwners = new SetNameOwners();
  const managers: Manager[] = [
    registry,
    selectors,
    new PolicySetsManager(sets, setOwners),
    new ThisHostSet(sets, isWorkload),
    new PolicyManager({ config, names, families, setOwners, logger: options.logger }),
    new WorkloadRules(endpointDeps),
    new KnownSources(families, endpointDeps.registry),
    new HostRules(endpointDeps),
    new FloatingIps({ families, registry, isEnabled: options.floatingIps }),
    new PoolSet(sets, SET.masqueradePools, (pool) => pool.masquerade),
    new PoolSet(sets, SET.allPools, isNetworkPool),
    new OutgoingNat(config, families),
    new EgressDscp(families),
    new ServiceLoopPrevention(config, families),
  ];
  for (const version of [4, 6] as const) {
    if (vxlanEnabledFor(config, version))
      managers.push(new VxlanHostsSet(setsOf(version), externalNodes, options.hostname));
    // The set of IPv4 hosts is only used for IPIP, unless hosts are excluded from masquerading.
    if ((version === 4 && config.ipipEnabled) || config.natExcludesHosts)
      managers.push(new AllHostsSet(setsOf(version), externalNodes));
  }
  if (options.arp !== undefined) managers.push(new ArpRules(options.arp, new ChainNames(NFT_CHAIN_LENGTH), registry));
  if (config.ipvs) managers.push(new IpvsRules(endpointDeps));
  if (config.istioDscp !== undefined) managers.push(new IstioSet(sets));
  if (config.flowtable !== undefined) managers.push(new OffloadExclusions(families));
  return { registry, managers };
}
