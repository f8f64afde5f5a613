// Keeps the rules for kube-proxy in IPVS mode. A packet to a service is received like a packet to the host, and sent like a
// packet of the host, so its incoming interface is not known when policy is applied. In INPUT, the packet gets a mark with its
// endpoint; in OUTPUT, the mark selects the chain of that endpoint.
import type { Manager } from "../loop/manager.ts";
import { type RulesConfig, SET, workloadPatterns } from "../rules/config.ts";
import { dispatchTree } from "../rules/dispatch-tree.ts";
import { denyAction } from "../rules/endpoint-chains.ts";
import { EndpointMarks } from "../rules/marks.ts";
import type { ChainNames } from "../rules/names.ts";
import { splitPorts } from "../rules/port-groups.ts";
import {
  accept,
  chain,
  clearMark,
  established,
  goto,
  hostChain,
  inInterface,
  inSet,
  jump,
  markSet,
  notInSet,
  outInterface,
  protocolIs,
  returnAction,
  type Rule,
  type RuleChain,
} from "../rules/rule.ts";
import type { EndpointRulesDeps } from "./workload-rules.ts";

const SET_MARK = "cali-set-endpoint-mark";
const FROM_MARK = "cali-from-endpoint-mark";

export class IpvsRules implements Manager {
  readonly name = "IPVS endpoint marks";
  readonly #deps: Omit<EndpointRulesDeps, "selectors" | "placer">;
  readonly #marks: EndpointMarks;
  readonly #dirty: Set<string>;
  #written = new Map<string, "workload" | "host">();
  #children: readonly string[] = [];
  #hostVersion = -1;

  constructor(deps: Omit<EndpointRulesDeps, "selectors" | "placer">) {
    this.#deps = deps;
    this.#marks = new EndpointMarks(deps.config.marks);
    this.#dirty = deps.registry.watchWorkloads();
    this.#setChains([forwardCheck(deps.config), forwardEndpointMark(deps.config), ...this.#dispatch(new Map())]);
  }

  onUpdate(): void {} // the registry stores the messages

  apply(): void {
    const { registry, names } = this.#deps;
    if (this.#dirty.size === 0 && this.#hostVersion === registry.hostVersion) return;
    this.#dirty.clear();
    this.#hostVersion = registry.hostVersion;
    const desired = new Map<string, "workload" | "host">();
    for (const name of registry.activeWorkloads.keys()) desired.set(name, "workload");
    for (const name of registry.hostByInterface.keys()) desired.set(name, "host");
    if (sameEntries(desired, this.#written)) return;

    for (const name of this.#written.keys()) if (!desired.has(name)) this.#marks.release(name);
    const chains = [...desired.keys()].map((name) => setMarkChain(this.#deps.config, names, this.#marks, name));
    this.#setChains([...chains, ...this.#dispatch(desired)]);
    for (const { tables } of this.#deps.families)
      for (const name of this.#written.keys()) if (!desired.has(name)) tables.filter.removeChain(names.setMark(name));
    this.#written = desired;
  }

  #setChains(chains: readonly RuleChain[]): void {
    for (const { tables } of this.#deps.families) for (const built of chains) tables.filter.setChain(built);
  }

  /** The chains that set the mark by interface, and that select the endpoint's chain by mark. */
  #dispatch(endpoints: ReadonlyMap<string, "workload" | "host">): RuleChain[] {
    const { config, names, families } = this.#deps;
    const bits = config.marks.endpoint;
    const toMark: Rule[] = [];
    const fromMark: Rule[] = [];
    const children: RuleChain[] = [];
    for (const kind of ["workload", "host"] as const) {
      const sorted = [...endpoints.keys()].filter((name) => endpoints.get(name) === kind).sort();
      const targets = new Map(sorted.map((name) => [name, names.setMark(name)]));
      const infix = kind === "workload" ? "wep" : "hep";
      const parts = dispatchTree({
        kind: "dispatch",
        name: `${SET_MARK}-${infix}`,
        direction: "in",
        targets,
        otherwise: [],
      });
      toMark.push(...(parts.at(-1)?.rules ?? []));
      children.push(...parts.slice(0, -1));
      for (const name of sorted) {
        const value = this.#marks.get(name);
        if (value === undefined) continue; // all marks are in use: packets are denied as "Unknown interface"
        const target = names.endpoint(kind === "workload" ? "fromWorkload" : "fromHostForward", name);
        fromMark.push({ match: [{ kind: "mark", value, mask: bits }], action: goto(target) });
      }
    }
    const deny = denyAction(config);
    for (const pattern of workloadPatterns(config))
      toMark.push({ match: [inInterface(pattern)], action: deny, comments: ["Unknown endpoint"] });
    toMark.push({
      action: { kind: "setMark", value: config.marks.nonCalicoEndpoint, mask: bits },
      comments: ["Non-Cali endpoint mark"],
    });
    fromMark.push({ action: deny, comments: ["Unknown interface"] });

    const kept = new Set(children.map(({ name }) => name));
    for (const { tables } of families)
      for (const name of this.#children) if (!kept.has(name)) tables.filter.removeChain(name);
    this.#children = [...kept];
    return [...children, chain(SET_MARK, toMark), chain(FROM_MARK, fromMark)];
  }
}

/** `cali-sm-…`: sets the mark of one endpoint. */
function setMarkChain(config: RulesConfig, names: ChainNames, marks: EndpointMarks, interfaceName: string): RuleChain {
  const value = marks.get(interfaceName);
  const rules: Rule[] =
    value === undefined ? [] : [{ action: { kind: "setMark", value, mask: config.marks.endpoint } }];
  return chain(names.setMark(interfaceName), rules);
}

/** Determines whether a packet is for the host itself or will be forwarded by IPVS. */
function forwardCheck(config: RulesConfig): RuleChain {
  // A reply to a process of this host may come from a service address. It is not forwarded.
  const rules: Rule[] = [{ match: [established], action: returnAction }];
  for (const ranges of splitPorts(config.nodePortRanges))
    for (const protocol of ["tcp", "udp"])
      rules.push({
        match: [
          protocolIs(protocol),
          { kind: "ports", side: "destination", protocol, ranges },
          inSet("destination", SET.thisHost),
        ],
        action: goto(SET_MARK),
        comments: ["To kubernetes NodePort service"],
      });
  rules.push({
    match: [notInSet("destination", SET.thisHost)],
    action: jump(SET_MARK),
    comments: ["To kubernetes service"],
  });
  return hostChain("cali-forward-check", rules);
}

/** For packets that IPVS forwards: the policy of the source endpoint, then of the destination endpoint. */
function forwardEndpointMark(config: RulesConfig): RuleChain {
  const { marks } = config;
  const rules: Rule[] = [
    {
      match: [{ kind: "mark", value: marks.nonCalicoEndpoint, mask: marks.endpoint, negated: true }],
      action: jump(FROM_MARK),
    },
  ];
  for (const pattern of workloadPatterns(config))
    rules.push({ match: [outInterface(pattern)], action: jump("cali-to-wl-dispatch") });
  rules.push(
    { action: jump("cali-to-hep-forward") },
    { action: clearMark(marks.endpoint) },
    {
      match: [markSet(marks.accept)],
      action: config.filterAllow === "accept" ? accept : returnAction,
      comments: ["Policy explicitly accepted packet."],
    },
  );
  return chain("cali-forward-endpoint-mark", rules);
}

const sameEntries = (a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean =>
  a.size === b.size && [...a].every(([key, value]) => b.get(key) === value);
