// Builds the chain of one endpoint and direction: established connections first, then the tiers in order, then the profiles,
// and finally a deny.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { type RulesConfig } from "./config.ts";
import type { Direction } from "./names.ts";
import { nflogEndOfTier, nflogGroup, nflogNoProfile } from "./nflog.ts";
import {
  accept,
  type Action,
  chain,
  clearMark,
  destinationPort,
  drop,
  established,
  jump,
  markClear,
  markNotClear,
  markSet,
  notrack,
  protocolIs,
  returnAction,
  type Rule,
  type RuleChain,
  setMark,
} from "./rule.ts";
import { SharedRules } from "./shared-rules.ts";
import { allowAction } from "./static-rules.ts";

/** The chains of a tier's policies in one direction. */
export interface TierChains {
  readonly name: string;
  /** Chains of policies or policy groups, in order, without staged policies. */
  readonly chains: readonly string[];
  /** True if any policy of the tier is enforced, and the default action of the tier is deny. */
  readonly endsInDrop: boolean;
}

export type EndpointChainUse =
  /** Traffic of workloads or local processes, after routing. */
  | "normal"
  /** Traffic that the host forwards through a host endpoint. */
  | "forward"
  /** Before connection tracking. */
  | "untracked"
  /** Before destination NAT. */
  | "preDnat";

export interface EndpointChainInput {
  readonly name: string;
  readonly direction: Direction;
  readonly use: EndpointChainUse;
  readonly isWorkload: boolean;
  readonly adminUp: boolean;
  /** Tiers with policies in this direction. */
  readonly tiers: readonly TierChains[];
  /** Forwarded traffic of an endpoint without any forward policy is allowed. */
  readonly allowsByDefault?: boolean;
  readonly profileChains: readonly string[];
  /** The action for accepted packets in this table. */
  readonly allow: "accept" | "return";
  readonly failsafeChain?: string;
  readonly packetRate?: { readonly packetsPerSecond: number; readonly burst: number };
  readonly maxConnections?: number;
}

export const denyAction = (config: RulesConfig): Action => (config.deny === "drop" ? drop : { kind: "reject" });
const denyWord = (config: RulesConfig): string => (config.deny === "drop" ? "Drop" : "Reject");

export function endpointChain(config: RulesConfig, input: EndpointChainInput): RuleChain {
  if (!input.adminUp) return chain(input.name, [{ action: denyAction(config), comments: ["Endpoint admin disabled"] }]);
  const { use, direction } = input;
  const rules = [...openingRules(config, input)];
  for (const tier of input.tiers) {
    rules.push(...tierRules(config, use, tier));
    if (use === "normal" || use === "forward") rules.push(...tierEndRules(config, direction, tier));
  }
  if (use === "forward" && input.allowsByDefault === true)
    rules.push(
      { action: setMark(config.marks.accept), comments: ["Allow forwarded traffic by default"], ifRejected: "omit" },
      { action: returnAction, comments: ["Return for accepted forward traffic"] },
    );
  if (use === "normal") rules.push(...profileRules(config, direction, input.profileChains));
  return chain(input.name, rules);
}

/** The chain of an endpoint if the kernel rejects the jump to its policy: allows only established connections and failsafe ports. */
export function closedChain(
  config: RulesConfig,
  input: Pick<EndpointChainInput, "name" | "direction" | "use" | "allow" | "failsafeChain">,
): RuleChain {
  const { use } = input;
  const isFinal = use === "normal" || use === "forward"; // REJECT is not possible before routing
  return chain(input.name, [
    ...openingRules(config, { ...input, isWorkload: false, adminUp: true, tiers: [], profileChains: [] }),
    { action: isFinal ? denyAction(config) : drop, comments: ["Policy cannot be asked"] },
  ]);
}

/** The rules before policy: limits, established connections, and failsafe ports. */
function openingRules(config: RulesConfig, input: EndpointChainInput): Rule[] {
  const { marks } = config;
  const { direction, use, allow } = input;
  const deny = denyAction(config);
  const shared = sharedOf(config);
  const rules: Rule[] = [];
  if (input.packetRate !== undefined)
    rules.push({ action: { kind: "dropOverRate", ...input.packetRate, what: direction } });
  if (use !== "untracked") {
    // If the kernel rejects one of these rules, it must not be replaced by a drop, because the failsafe ports follow later.
    const ifRejected = "omit";
    if (allow !== "accept") rules.push({ match: [established], action: setMark(marks.accept), ifRejected });
    rules.push(
      shared.get(`established ${allow}`, () => ({ match: [established], action: allowAction(allow), ifRejected })),
    );
    if (!config.disableConntrackInvalidCheck)
      rules.push(
        shared.get("invalid", () => ({ match: [{ kind: "ctState", states: ["invalid"] }], action: deny, ifRejected })),
      );
  }
  if (input.maxConnections !== undefined)
    rules.push({
      match: [{ kind: "connectionsAbove", count: input.maxConnections }],
      action: { kind: "reject", with: "tcp-reset" },
      comments: [`Reject connections over ${direction} connection limit`],
    });
  if (input.failsafeChain !== undefined) rules.push({ action: jump(input.failsafeChain), ifRejected: "omit" });
  rules.push(shared.get("begin", () => ({ action: clearMark(marks.accept | marks.pass) })));
  if (input.isWorkload && direction === "egress") rules.push(...encapsulationRules(config, deny, shared));
  return rules;
}

/** The policies of a tier in order, until one allows or passes the packet. */
function tierRules(config: RulesConfig, use: EndpointChainUse, tier: TierChains): Rule[] {
  const { marks } = config;
  const shared = sharedOf(config);
  const rules: Rule[] = [
    shared.get(`start ${tier.name}`, () => ({
      action: clearMark(marks.pass),
      comments: [`Start of tier ${tier.name}`],
    })),
  ];
  const accepted = shared.get("policy accepted", () => ({
    match: [markSet(marks.accept)],
    action: returnAction,
    comments: ["Return if policy accepted"],
  }));
  for (const policy of tier.chains) {
    rules.push({ match: [markClear(marks.pass)], action: jump(policy) });
    if (use === "untracked") rules.push({ match: [markSet(marks.accept)], action: notrack });
    rules.push(accepted);
  }
  return rules;
}

/** The rules for packets that no policy of the tier decided on. */
function tierEndRules(config: RulesConfig, direction: Direction, tier: TierChains): Rule[] {
  const undecided = [markClear(config.marks.pass)];
  const log = (decision: "deny" | "pass"): Rule[] =>
    config.flowLogs
      ? [
          {
            match: undecided,
            action: {
              kind: "nflog",
              group: nflogGroup(direction),
              prefix: nflogEndOfTier(decision, direction, tier.name),
            },
          },
        ]
      : [];
  // Also if all policies of the tier are staged, so that the flow log shows the decision that they would have made.
  if (!tier.endsInDrop) return log("pass");
  const end = sharedOf(config).get(`end ${tier.name}`, () => ({
    match: undecided,
    action: denyAction(config),
    comments: [`End of tier ${tier.name}. ${denyWord(config)} if no policies passed packet`],
  }));
  return [...log("deny"), end];
}

/** The profiles in order, and then a deny. */
function profileRules(config: RulesConfig, direction: Direction, profileChains: readonly string[]): Rule[] {
  const shared = sharedOf(config);
  const accepted = shared.get("profile accepted", () => ({
    match: [markSet(config.marks.accept)],
    action: returnAction,
    comments: ["Return if profile accepted"],
  }));
  const rules: Rule[] = profileChains.flatMap((profile) => [{ action: jump(profile) }, accepted]);
  if (config.flowLogs)
    rules.push({ action: { kind: "nflog", group: nflogGroup(direction), prefix: nflogNoProfile(direction) } });
  const noProfile = shared.get("no profile", () => ({
    action: denyAction(config),
    comments: [`${denyWord(config)} if no profiles matched`],
  }));
  return [...rules, noProfile];
}

/** A workload that sends encapsulated packets could bypass policy. */
function encapsulationRules(config: RulesConfig, deny: Action, shared: SharedRules): Rule[] {
  const rules: Rule[] = [];
  if (!config.allowVxlanFromWorkloads)
    rules.push(
      shared.get("VXLAN", () => ({
        match: [protocolIs(17), destinationPort(17, config.vxlanPort)],
        action: deny,
        comments: [`${denyWord(config)} VXLAN encapped packets originating in workloads`],
      })),
    );
  if (!config.allowIpipFromWorkloads)
    rules.push(
      shared.get("IPIP", () => ({
        match: [protocolIs(4)],
        action: deny,
        comments: [`${denyWord(config)} IPinIP encapped packets originating in workloads`],
      })),
    );
  return rules;
}

/** Rules that the chains of all endpoints contain, by configuration. */
const sharedByConfig = new WeakMap<RulesConfig, SharedRules>();

function sharedOf(config: RulesConfig): SharedRules {
  let shared = sharedByConfig.get(config);
  if (shared === undefined) sharedByConfig.set(config, (shared = new SharedRules()));
  return shared;
}

const BLOCK = 5;
/** The chain of a policy group: after every five jumps, a rule returns if there is a verdict. */
export function policyGroupChain(config: RulesConfig, name: string, policyChains: readonly string[]): RuleChain {
  const verdict = config.marks.accept | config.marks.pass;
  const rules: Rule[] = [];
  for (const [i, policy] of policyChains.entries()) {
    if (i % BLOCK === 0) {
      if (i > 0)
        rules.push(
          sharedOf(config).get("on verdict", () => ({
            match: [markNotClear(verdict)],
            action: returnAction,
            comments: ["Return on verdict"],
          })),
        );
      rules.push({ action: jump(policy) });
    } else rules.push({ match: [markClear(verdict)], action: jump(policy) });
  }
  return chain(name, rules);
}

/** Ports that stay open independent of policy, so that an operator cannot lock himself out. */
export function failsafeChains(
  config: RulesConfig,
  tableName: "raw" | "mangle" | "filter",
  version: IpVersion,
): RuleChain[] {
  const rulesFor = (
    ports: RulesConfig["failsafeIn"],
    side: "source" | "destination",
    netSide: "source" | "destination",
  ) =>
    ports.flatMap(({ protocol, port, net }): Rule[] => {
      if (net !== undefined && (net.includes(":") ? 6 : 4) !== version) return [];
      return [
        {
          match: [
            protocolIs(protocol),
            { kind: "ports", side, protocol, ranges: [{ first: port, last: port }] },
            ...(net === undefined ? [] : [{ kind: "nets", side: netSide, nets: [net] } as const]),
          ],
          action: accept,
        },
      ];
    });
  const inward = rulesFor(config.failsafeIn, "destination", "source");
  const outward = rulesFor(config.failsafeOut, "destination", "destination");
  if (tableName === "raw") {
    // Without connection tracking, replies are not recognized. They are allowed by their source port.
    inward.push(...rulesFor(config.failsafeOut, "source", "source"));
    outward.push(...rulesFor(config.failsafeIn, "source", "destination"));
  }
  return [chain("cali-failsafe-in", inward), chain("cali-failsafe-out", outward)];
}
