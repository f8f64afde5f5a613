// Builds the static chains of the filter table, which allow or deny packets to, from and through the host.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { type RulesConfig, SET, vxlanEnabledFor, workloadPatterns } from "./config.ts";
import { jumpToHostPolicy } from "./fallback/fallback-chains.ts";
import { denyAction } from "./endpoint-chains.ts";
import { acceptedByHostPolicy, allowAction, omittable, jumpFromHook, type HookRules } from "./static-rules.ts";
import {
  chain,
  clearMark,
  destinationPort,
  goto,
  hostChain,
  inInterface,
  inSet,
  isLocal,
  isAddress,
  jump,
  markClear,
  markSet,
  notInSet,
  outInterface,
  protocolIs,
  returnAction,
  type Rule,
  type RuleChain,
  setMark,
  sourcePort,
  drop,
} from "./rule.ts";

export function filterHooks(config: RulesConfig): HookRules {
  return {
    insert: new Map([jumpFromHook("INPUT"), jumpFromHook("FORWARD"), jumpFromHook("OUTPUT")]),
    append: new Map([
      [
        "FORWARD",
        [
          {
            match: [markSet(config.marks.accept)],
            action: allowAction(config.filterAllow),
            comments: ["Policy explicitly accepted packet."],
          },
          // In mangle POSTROUTING, the mark shows that the packet was forwarded.
          omittable({ action: setMark(config.marks.accept) }),
        ],
      ],
    ]),
  };
}

export function filterChains(config: RulesConfig, version: IpVersion): RuleChain[] {
  return [
    forwardChain(config),
    hostChain("cali-INPUT", inputRules(config, version)),
    chain("cali-wl-to-host", workloadToHostRules(config, version)),
    hostChain("cali-OUTPUT", outputRules(config, version)),
  ];
}

function forwardChain(config: RulesConfig): RuleChain {
  const { marks } = config;
  const rules: Rule[] = [];
  if (config.flowtable !== undefined)
    rules.push({
      match: [
        { kind: "ctState", states: ["established"] },
        notInSet("source", SET.noOffload),
        notInSet("destination", SET.noOffload),
      ],
      action: { kind: "offload", flowtable: config.flowtable },
      comments: ["Offload established Calico flows."],
    });
  rules.push(
    { action: clearMark(marks.all & ~marks.accept) },
    jumpToHostPolicy("cali-from-hep-forward", markClear(marks.accept)),
  );
  for (const pattern of workloadPatterns(config))
    rules.push(
      { match: [inInterface(pattern)], action: jump("cali-from-wl-dispatch"), ifRejected: "drop" },
      { match: [outInterface(pattern)], action: jump("cali-to-wl-dispatch"), ifRejected: "drop" },
    );
  rules.push(jumpToHostPolicy("cali-to-hep-forward"), omittable({ action: jump("cali-cidr-block") }));
  return hostChain("cali-FORWARD", rules);
}

function inputRules(config: RulesConfig, version: IpVersion): Rule[] {
  const { marks } = config;
  const allowed = allowAction(config.filterAllow);
  const deny = denyAction(config);
  const rules: Rule[] = [];
  if (version === 4 && config.ipipEnabled)
    rules.push(
      {
        match: [protocolIs(4), inSet("source", SET.allHosts), isLocal("destination")],
        action: allowed,
        comments: ["Allow IPIP packets from Calico hosts"],
      },
      { match: [protocolIs(4)], action: deny, comments: ["Drop IPIP packets from non-Calico hosts"] },
    );
  if (vxlanEnabledFor(config, version)) {
    const vxlan = [protocolIs(17), destinationPort(17, config.vxlanPort)];
    rules.push(
      {
        match: [...vxlan, inSet("source", SET.vxlanHosts), isLocal("destination")],
        action: allowed,
        comments: [`Allow IPv${version} VXLAN packets from allowed hosts`],
      },
      {
        match: [...vxlan, isLocal("destination")],
        action: version === 4 ? drop : deny,
        comments: [`Drop IPv${version} VXLAN packets from non-allowed hosts`],
      },
    );
  }
  if (wireguardFor(config, version))
    rules.push({
      match: [protocolIs(17), destinationPort(17, wireguardPort(config, version)), isLocal("destination")],
      action: allowed,
      comments: [`Allow incoming IPv${version} Wireguard packets`],
    });
  if (config.ipvs)
    rules.push(
      { action: clearMark(marks.endpoint) },
      { action: jump("cali-forward-check") },
      { match: [{ kind: "mark", value: 0, mask: marks.endpoint, negated: true }], action: returnAction },
    );
  for (const pattern of workloadPatterns(config))
    rules.push({ match: [inInterface(pattern)], action: goto("cali-wl-to-host"), ifRejected: "drop" });
  rules.push(
    { match: [markSet(marks.accept)], action: allowed },
    { action: clearMark(marks.all) },
    jumpToHostPolicy("cali-from-host-endpoint"),
    acceptedByHostPolicy(config, allowed),
  );
  return rules;
}

/** ICMPv6 types of neighbour discovery and multicast listener discovery. Without them, a workload has no IPv6. */
export const DISCOVERY_TYPES = [130, 131, 132, 133, 135, 136] as const;

function workloadToHostRules(config: RulesConfig, version: IpVersion): Rule[] {
  const allowed = allowAction(config.filterAllow);
  const rules: Rule[] = [];
  if (version === 6)
    for (const type of DISCOVERY_TYPES)
      rules.push(omittable({ match: [protocolIs(58), { kind: "icmp", type }], action: allowed }));
  if (config.openstack !== undefined) {
    const { metadataAddress, metadataPort } = config.openstack;
    if (version === 4 && metadataAddress !== undefined)
      rules.push(
        omittable({
          match: [protocolIs("tcp"), isAddress("destination", metadataAddress), destinationPort("tcp", metadataPort)],
          action: allowed,
        }),
      );
    const [client, server] = version === 4 ? [68, 67] : [546, 547];
    rules.push(
      omittable({
        match: [protocolIs("udp"), sourcePort("udp", client), destinationPort("udp", server)],
        action: allowed,
      }),
      omittable({ match: [protocolIs("udp"), destinationPort("udp", 53)], action: allowed }),
    );
  }
  rules.push(
    { action: jump("cali-from-wl-dispatch") },
    {
      action: { kind: config.endpointToHost },
      comments: ["Configured DefaultEndpointToHostAction"],
    },
  );
  return rules;
}

function outputRules(config: RulesConfig, version: IpVersion): Rule[] {
  const { marks } = config;
  const allowed = allowAction(config.filterAllow);
  const rules: Rule[] = [{ match: [markSet(marks.accept)], action: allowed }];
  if (config.ipvs)
    rules.push({
      match: [{ kind: "mark", value: 0, mask: marks.endpoint, negated: true }],
      action: goto("cali-forward-endpoint-mark"),
    });
  // The host may always connect to its workloads, for example for health checks.
  for (const pattern of workloadPatterns(config)) rules.push({ match: [outInterface(pattern)], action: returnAction });
  if (version === 4 && config.ipipEnabled)
    rules.push({
      match: [protocolIs(4), inSet("destination", SET.allHosts), isLocal("source")],
      action: allowed,
      comments: ["Allow IPIP packets to other Calico hosts"],
    });
  if (vxlanEnabledFor(config, version))
    rules.push({
      match: [
        protocolIs(17),
        destinationPort(17, config.vxlanPort),
        isLocal("source"),
        inSet("destination", SET.vxlanHosts),
      ],
      action: allowed,
      comments: [`Allow IPv${version} VXLAN packets to other allowed hosts`],
    });
  if (wireguardFor(config, version))
    rules.push({
      match: [protocolIs(17), destinationPort(17, wireguardPort(config, version)), isLocal("source")],
      action: allowed,
      comments: [`Allow outgoing IPv${version} Wireguard packets`],
    });
  rules.push(
    { action: clearMark(marks.all) },
    // A packet whose destination was translated still has its old interface here. Its new one is known in mangle POSTROUTING.
    jumpToHostPolicy("cali-to-host-endpoint", { kind: "ctDnat", negated: true }),
    acceptedByHostPolicy(config, allowed),
  );
  return rules;
}

const wireguardFor = (config: RulesConfig, version: IpVersion): boolean =>
  version === 4 ? config.wireguardEnabled : config.wireguardEnabledV6;
const wireguardPort = (config: RulesConfig, version: IpVersion): number =>
  version === 4 ? config.wireguardPort : config.wireguardPortV6;
