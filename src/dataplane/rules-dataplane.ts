// The managers that write rules, wired to planes of one renderer.
import type { Cidr } from "../lib/ip.ts";
import type { Logger } from "../lib/log.ts";
import type { Manager } from "./manager.ts";
import { ArpRules } from "./managers/arp-rules.ts";
import { ChainPlacer } from "./managers/chain-placer.ts";
import { EndpointRegistry } from "./managers/endpoint-registry.ts";
import { HostRules } from "./managers/host-rules.ts";
import { KnownSources } from "./managers/known-sources.ts";
import { IpvsRules } from "./managers/ipvs-rules.ts";
import { FloatingIps, OutgoingNat } from "./managers/nat-rules.ts";
import { PolicyManager } from "./managers/policy-manager.ts";
import { PolicySelectors } from "./managers/policy-selectors.ts";
import {
  AllHostsSet,
  isNetworkPool,
  IstioSet,
  PolicySetsManager,
  PoolSet,
  ThisHostSet,
  VxlanHostsSet,
} from "./managers/set-managers.ts";
import { EgressDscp, OffloadExclusions, ServiceLoops } from "./managers/small-rules.ts";
import { WorkloadRules } from "./managers/workload-rules.ts";
import { isWorkloadInterface, type RulesConfig, SET, vxlanEnabledFor } from "./rules/config.ts";
import { installStaticChains } from "./rules/install.ts";
import type { LayerTable, RulePlane } from "./rules/layer-table.ts";
import { SetNameOwners } from "./rules/name-owners.ts";
import { ChainNames, NFT_CHAIN_LENGTH } from "./rules/names.ts";

export interface RuleManagersOptions {
  readonly config: RulesConfig;
  readonly planes: readonly RulePlane[];
  readonly chainNameLimit: number;
  readonly hostname: string;
  readonly externalNodes: readonly Cidr[];
  readonly floatingIps: boolean;
  readonly logger: Logger;
  /** The alias of an interface. By default none has one. */
  readonly aliasOf?: (interfaceName: string) => string | undefined;
  /** Where ARP is looked at. */
  readonly arp?: LayerTable;
  /** Interfaces that are never a host endpoint's. */
  readonly isExcludedInterface?: (name: string) => boolean;
}

export interface RuleManagers {
  readonly registry: EndpointRegistry;
  /** In the order they see messages. */
  readonly managers: readonly Manager[];
}

export function createRuleManagers(options: RuleManagersOptions): RuleManagers {
  const { config, planes, externalNodes } = options;
  const names = new ChainNames(options.chainNameLimit);
  const isWorkload = (name: string) => isWorkloadInterface(config, name);
  const isExcluded = (name: string) => isWorkload(name) || options.isExcludedInterface?.(name) === true;
  const registry = new EndpointRegistry(isExcluded, options);
  const selectors = new PolicySelectors();
  const placer = new ChainPlacer(config, planes);
  const endpointDeps = { config, names, planes, registry, selectors, placer };
  const sets = planes.map((plane) => plane.sets);
  const setsOf = (version: 4 | 6) => sets.filter((s) => s.version === version);
  installStaticChains(config, planes);

  const setOwners = new SetNameOwners();
  const managers: Manager[] = [
    registry,
    selectors,
    new PolicySetsManager(sets, setOwners),
    new ThisHostSet(sets, isWorkload),
  ];
  managers.push(
    new PolicyManager({ config, names, planes, setOwners, logger: options.logger }),
    new WorkloadRules(endpointDeps),
    new KnownSources(planes, endpointDeps.registry),
    new HostRules(endpointDeps),
    new FloatingIps({ planes, registry, isEnabled: options.floatingIps }),
    new PoolSet(sets, SET.masqueradePools, (pool) => pool.masquerade),
    new PoolSet(sets, SET.allPools, isNetworkPool),
    new OutgoingNat(config, planes),
    new EgressDscp(planes),
    new ServiceLoops(config, planes),
  );
  for (const version of [4, 6] as const) {
    if (vxlanEnabledFor(config, version))
      managers.push(new VxlanHostsSet(setsOf(version), externalNodes, options.hostname));
    // Tunnelled IPv4 is the only use for IPv4 hosts, unless masquerading leaves hosts out.
    if ((version === 4 && config.ipipEnabled) || config.natExcludesHosts)
      managers.push(new AllHostsSet(setsOf(version), externalNodes));
  }
  if (options.arp !== undefined) managers.push(new ArpRules(options.arp, new ChainNames(NFT_CHAIN_LENGTH), registry));
  if (config.ipvs) managers.push(new IpvsRules(endpointDeps));
  if (config.istioDscp !== undefined) managers.push(new IstioSet(sets));
  if (config.flowtable !== undefined) managers.push(new OffloadExclusions(planes));
  return { registry, managers };
}
