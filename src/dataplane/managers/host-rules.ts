// Keeps the chains of host endpoints: for traffic of local processes, for forwarded traffic, and for policy before connection
// tracking or destination NAT.
import type { ProtoHostEndpoint, TierInfo } from "../../calc/index.ts";
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";
import { unreachable } from "../../lib/unreachable.ts";
import type { Manager } from "../loop/manager.ts";
import { type RulesConfig, workloadPatterns } from "../rules/config.ts";
import { closedHostChain, closedHostFallback, type HostDispatch } from "../rules/fallback/fallback-chains.ts";
import { closedChain, endpointChain, type EndpointChainInput, failsafeChains } from "../rules/endpoint-chains.ts";
import { DISCOVERY_TYPES } from "../rules/filter-chains.ts";
import { omittable } from "../rules/static-rules.ts";
import type { Direction, EndpointChainKind } from "../rules/names.ts";
import {
  destinationPort,
  type DispatchChain,
  goto,
  hostChain,
  inInterface,
  isLocal,
  isNet,
  type TableName,
  outInterface,
  protocolIs,
  returnAction,
  type Rule,
  type RuleChain,
} from "../rules/rule.ts";
import type { PlacedChain } from "./chain-placer.ts";
import { type PolicyGroup, planTiers } from "./tier-chains.ts";
import type { EndpointRulesDeps } from "./workload-rules.ts";

/** The places where host endpoint policy is applied. */
type HostPlace = "filter" | "forward" | "mangle" | "raw";
/** Chain by interface. */
type HostTargets = Readonly<Record<HostPlace, Readonly<Record<"in" | "out", Map<string, string>>>>>;

interface ChainSpec {
  readonly kind: EndpointChainKind;
  readonly place: HostPlace;
  readonly tiers: readonly TierInfo[];
  readonly use: EndpointChainInput["use"];
  readonly allow: "accept" | "return";
}

const PLACES = ["filter", "forward", "mangle", "raw"] as const satisfies readonly HostPlace[];
const SIDES = ["in", "out"] as const;
const tableNameOf = (place: HostPlace): TableName => (place === "forward" ? "filter" : place);
/** The name of the dispatch chain. */
const dispatchOf = (place: HostPlace, side: "in" | "out"): HostDispatch =>
  `cali-${side === "in" ? "from" : "to"}-${place === "forward" ? "hep-forward" : "host-endpoint"}`;
/** The name of the chain that is used if the kernel rejects the jump to policy. */
const closedOf = (place: HostPlace, side: "in" | "out"): string =>
  place === "forward" ? `cali-closed-${side}-forward` : `cali-closed-${side}`;
const LINK_LOCAL_MULTICAST = "ff02::/16" as Cidr;
const FAILSAFE = { in: "cali-failsafe-in", out: "cali-failsafe-out" } as const;

export class HostRules implements Manager {
  readonly name = "host endpoint rules";
  readonly #deps: EndpointRulesDeps;
  readonly #owners = new Set<string>();
  #version = -1;

  constructor(deps: EndpointRulesDeps) {
    this.#deps = deps;
    for (const family of deps.families)
      for (const tableName of ["raw", "mangle", "filter"] as const)
        for (const built of failsafeChains(deps.config, tableName, family.version))
          family.tables[tableName].setChain(built);
    for (const place of PLACES)
      for (const side of SIDES)
        for (const { tables } of deps.families) tables[tableNameOf(place)].setChain(this.#closed(place, side));
  }

  onUpdate(): void {} // the registry stores the messages

  apply(): void {
    const { registry, selectors } = this.#deps;
    const isTouched =
      selectors.hasChanges &&
      [...registry.hostEndpoints.values()].some(({ tiers, forwardTiers, untrackedTiers, preDnatTiers }) =>
        [tiers, forwardTiers, untrackedTiers, preDnatTiers].some((list) => selectors.touches(list)),
      );
    if (this.#version === registry.hostVersion && !isTouched) return;
    this.#version = registry.hostVersion;
    const desired = new Map(registry.hostByInterface);
    if (registry.wildcardHost !== undefined) desired.set("*", registry.wildcardHost);
    for (const owner of this.#owners)
      if (!desired.has(owner)) {
        this.#deps.placer.remove(`host ${owner}`);
        this.#owners.delete(owner);
      }
    const open = new Set<string>();
    const targets: HostTargets = {
      filter: { in: new Map(), out: new Map() },
      forward: { in: new Map(), out: new Map() },
      mangle: { in: new Map(), out: new Map() },
      raw: { in: new Map(), out: new Map() },
    };
    for (const [interfaceName, id] of desired) {
      const endpoint = registry.hostEndpoints.get(id);
      if (endpoint === undefined) continue;
      this.#owners.add(interfaceName);
      if (endpoint.forwardTiers.length === 0) open.add(interfaceName);
      this.#place(interfaceName, endpoint, targets);
    }
    this.#applyDispatch(targets, open);
  }

  #place(interfaceName: string, endpoint: ProtoHostEndpoint, targets: HostTargets): void {
    const chains: PlacedChain[] = [];
    const groups: PolicyGroup[] = [];
    for (const spec of this.#chainSpecs(interfaceName, endpoint)) {
      const side = isOutward(spec.kind) ? "out" : "in";
      const direction: Direction = side === "out" ? "egress" : "ingress";
      const { config, names, selectors } = this.#deps;
      const plan = planTiers(names, spec.tiers, direction, selectors.of);
      const name = names.endpoint(spec.kind, interfaceName);
      const profiles = spec.use === "normal" ? endpoint.profileIds : [];
      const built = endpointChain(config, {
        name,
        direction,
        use: spec.use,
        allow: spec.allow,
        isWorkload: false,
        adminUp: true,
        tiers: plan.tiers,
        allowsByDefault: spec.tiers.length === 0,
        profileChains: profiles.map((profile) => names.profile(direction, profile)),
        ...(spec.use === "forward" ? {} : { failsafeChain: FAILSAFE[side] }),
      });
      chains.push({ tableName: tableNameOf(spec.place), chain: built });
      groups.push(...plan.groups);
      targets[spec.place][side].set(interfaceName, name);
    }
    this.#deps.placer.place(`host ${interfaceName}`, chains, groups);
  }

  #chainSpecs(interfaceName: string, endpoint: ProtoHostEndpoint): ChainSpec[] {
    const { filterAllow: allow, mangleAllow } = this.#deps.config;
    const { tiers, forwardTiers, preDnatTiers, untrackedTiers } = endpoint;
    const chainSpecs: ChainSpec[] = [
      { kind: "toHost", place: "filter", tiers, use: "normal", allow },
      { kind: "fromHost", place: "filter", tiers, use: "normal", allow },
      { kind: "toHostForward", place: "forward", tiers: forwardTiers, use: "forward", allow },
      { kind: "fromHostForward", place: "forward", tiers: forwardTiers, use: "forward", allow },
      // Packets with a translated destination pass policy again when their outgoing interface is known.
      { kind: "toHost", place: "mangle", tiers, use: "normal", allow: "return" },
    ];
    if (preDnatTiers.length > 0)
      chainSpecs.push({ kind: "fromHost", place: "mangle", tiers: preDnatTiers, use: "preDnat", allow: mangleAllow });
    // Untracked policy needs the interface in both directions, which the endpoint `*` does not have.
    if (untrackedTiers.length > 0 && interfaceName !== "*")
      chainSpecs.push(
        { kind: "fromHost", place: "raw", tiers: untrackedTiers, use: "untracked", allow: "accept" },
        { kind: "toHost", place: "raw", tiers: untrackedTiers, use: "untracked", allow: "accept" },
      );
    return chainSpecs;
  }

  /** @param open interfaces without policy for forwarded traffic */
  #applyDispatch(targets: HostTargets, open: ReadonlySet<string>): void {
    for (const place of PLACES)
      for (const side of SIDES) {
        const name = dispatchOf(place, side);
        const closedTargets = new Map(
          [...targets[place][side]].map(([interfaceName, own]) => [
            interfaceName,
            place === "forward" && open.has(interfaceName) ? own : closedOf(place, side),
          ]),
        );
        for (const { tables, version } of this.#deps.families) {
          const dispatch = this.#dispatch(name, side, place, targets[place][side], version);
          const closed = closedDispatch(closedHostFallback(name).chain, dispatch, closedTargets);
          tables[tableNameOf(place)].setChain(dispatch);
          tables[tableNameOf(place)].setChain(closed);
        }
      }
  }

  #closed(place: HostPlace, side: "in" | "out"): RuleChain {
    const { filterAllow, mangleAllow } = this.#deps.config;
    const name = closedOf(place, side);
    const direction = side === "out" ? "egress" : "ingress";
    const failsafeChain = FAILSAFE[side];
    const input = { name, direction, failsafeChain } as const;
    switch (place) {
      case "filter":
        return closedChain(this.#deps.config, { ...input, use: "normal", allow: filterAllow });
      case "forward":
        return closedChain(this.#deps.config, { name, direction, use: "forward", allow: filterAllow });
      case "mangle":
        return closedChain(
          this.#deps.config,
          side === "out"
            ? { ...input, use: "normal", allow: "return" }
            : { ...input, use: "preDnat", allow: mangleAllow },
        );
      case "raw":
        return closedChain(this.#deps.config, { ...input, use: "untracked", allow: "accept" });
      default:
        return unreachable(place);
    }
  }

  #dispatch(
    name: string,
    direction: "in" | "out",
    place: HostPlace,
    found: ReadonlyMap<string, string>,
    version: IpVersion,
  ): DispatchChain {
    const { config } = this.#deps;
    const targets = new Map(found);
    const anywhere = targets.get("*");
    targets.delete("*");
    const before: Rule[] = [];
    const otherwise: Rule[] = [];
    if (place === "mangle" && direction === "out" && anywhere !== undefined)
      for (const pattern of workloadPatterns(config))
        otherwise.push({
          match: [outInterface(pattern)],
          action: returnAction,
          comments: ["Skip egress WHEP policy for traffic to local workload"],
        });
    if (place === "mangle" && direction === "in" && anywhere !== undefined && version === 6)
      otherwise.push(...workloadDiscoveryRules(config));
    // `*` includes the loopback interface, on which Felix receives health probes.
    if (place === "filter" && anywhere !== undefined && config.healthPort !== undefined)
      before.push({
        match: [
          protocolIs("tcp"),
          direction === "in" ? inInterface("lo") : outInterface("lo"),
          destinationPort("tcp", config.healthPort),
        ],
        action: returnAction,
        comments: ["Keep the agent health port open on the loopback"],
      });
    if (anywhere !== undefined)
      otherwise.push({ action: goto(anywhere), ifRejected: closedHostChain(closedOf(place, direction)) });
    return { kind: "dispatch", name, direction, targets, before, otherwise, isHostWide: true };
  }
}

/**
 * Exempts neighbour discovery between workloads and this host from the pre-DNAT policy of the all-interfaces host
 * endpoint. Connection tracking does not track these packets, so that a deny would cut a workload's IPv6 as soon as its
 * entry for the gateway expires. Packets that would be forwarded are not exempt.
 */
function workloadDiscoveryRules(config: RulesConfig): Rule[] {
  const destinations = [isLocal("destination"), isNet("destination", LINK_LOCAL_MULTICAST)];
  return workloadPatterns(config).flatMap((pattern) =>
    destinations.flatMap((destination) =>
      DISCOVERY_TYPES.map((type) =>
        omittable({
          match: [inInterface(pattern), protocolIs(58), { kind: "icmp", type }, destination],
          action: returnAction,
          comments: ["Skip pre-DNAT WHEP policy for neighbour discovery of local workload"],
        }),
      ),
    ),
  );
}

/** The same dispatch with plain rules and other target chains. */
function closedDispatch(
  name: string,
  { before = [], direction, otherwise }: DispatchChain,
  chains: ReadonlyMap<string, string>,
): RuleChain {
  const rules: Rule[] = [...before];
  for (const [interfaceName, to] of chains)
    if (interfaceName !== "*")
      rules.push({ match: [{ kind: "interface", direction, name: interfaceName }], action: goto(to) });
  const anywhere = chains.get("*");
  if (anywhere !== undefined) rules.push(...otherwise.slice(0, -1), { action: goto(anywhere) });
  return hostChain(name, rules);
}

const isOutward = (kind: EndpointChainKind): boolean => kind === "toHost" || kind === "toHostForward";
