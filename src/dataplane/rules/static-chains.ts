// Builds the static chains of the raw, mangle and nat tables. Those of the filter table are in filter-chains.ts.
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import { type RulesConfig, SET, vxlanEnabledFor, workloadPatterns } from "./config.ts";
import { jumpToHostPolicy, KNOWN_SOURCES } from "./fallback/fallback-chains.ts";
import { acceptedByHostPolicy, allowAction, omittable, jumpFromHook, type HookRules } from "./static-rules.ts";
import {
  accept,
  clearMark,
  destinationPort,
  established,
  hostChain,
  inInterface,
  inSet,
  isLocal,
  isAddress,
  isNet,
  jump,
  markClear,
  markSet,
  type Match,
  notInSet,
  notrack,
  outInterface,
  type PortRange,
  protocolIs,
  returnAction,
  type Rule,
  type RuleChain,
  setMark,
  sourcePort,
  drop,
} from "./rule.ts";

// --- raw -----------------------------------------------------------------------------------------------------------

export function rawHooks(): HookRules {
  return { insert: new Map([jumpFromHook("PREROUTING"), jumpFromHook("OUTPUT")]), append: new Map() };
}

export function rawChains(config: RulesConfig, version: IpVersion): RuleChain[] {
  const { marks } = config;
  const vxlan: Rule[] = config.vxlanEnabled || config.vxlanEnabledV6 ? [vxlanNotrack(config, version)].flat() : [];
  const prerouting: Rule[] = [{ action: clearMark(marks.all) }];
  if (config.wireguardHostEncryption && marks.wireguard !== 0)
    prerouting.push(omittable({ action: jump("cali-wireguard-incoming-mark") }));
  prerouting.push(...vxlan);
  for (const pattern of workloadPatterns(config))
    prerouting.push({ match: [inInterface(pattern)], action: setMark(marks.scratch0) });
  prerouting.push(omittable({ match: [markSet(marks.scratch0)], action: jump("cali-rpf-skip") }));
  if (config.openstack !== undefined && version === 4)
    prerouting.push({
      match: [
        protocolIs("udp"),
        isAddress("source", "0.0.0.0" as IpAddress),
        sourcePort("udp", 68),
        destinationPort("udp", 67),
      ],
      action: accept,
    });
  prerouting.push(
    // REJECT is not possible before routing, so spoofed packets are always dropped.
    { match: [markSet(marks.scratch0), { kind: "reversePathFails" }], action: drop, ifRejected: KNOWN_SOURCES },
    jumpToHostPolicy("cali-from-host-endpoint", markClear(marks.scratch0)),
    { match: [markSet(marks.accept)], action: accept },
  );
  const output: Rule[] = [
    { action: clearMark(marks.all) },
    jumpToHostPolicy("cali-to-host-endpoint"),
    ...vxlan,
    { match: [markSet(marks.accept)], action: accept },
  ];
  const chains = [hostChain("cali-PREROUTING", prerouting), hostChain("cali-OUTPUT", output)];
  if (marks.wireguard !== 0) chains.push(wireguardIncomingMark(config));
  return chains;
}

function vxlanNotrack(config: RulesConfig, version: IpVersion): Rule[] {
  if (!vxlanEnabledFor(config, version)) return [];
  return [{ match: [{ kind: "udpPort", port: config.vxlanPort }], action: notrack }];
}

function wireguardIncomingMark(config: RulesConfig): RuleChain {
  const others = [
    "lo",
    ...[config.wireguardInterface, config.wireguardInterfaceV6].filter((name) => name !== ""),
    ...workloadPatterns(config),
  ];
  return hostChain("cali-wireguard-incoming-mark", [
    ...others.map((name): Rule => ({ match: [inInterface(name)], action: returnAction })),
    omittable({ action: setMark(config.marks.wireguard) }),
  ]);
}

// --- mangle ----------------------------------------------------------------------------------------------------------

export function mangleHooks(): HookRules {
  return { insert: new Map([jumpFromHook("PREROUTING"), jumpFromHook("POSTROUTING")]), append: new Map() };
}

export function mangleChains(config: RulesConfig): RuleChain[] {
  const { marks } = config;
  const allowed = allowAction(config.mangleAllow);
  const prerouting: Rule[] = [
    { match: [established], action: allowed },
    { match: [markSet(marks.accept)], action: allowed },
    jumpToHostPolicy("cali-from-host-endpoint"),
    acceptedByHostPolicy(config, allowed),
  ];
  const postrouting: Rule[] = [];
  if (config.istioDscp !== undefined)
    for (const pattern of workloadPatterns(config))
      postrouting.push({
        match: [
          protocolIs("tcp"),
          { kind: "ctState", states: ["new"] },
          outInterface(pattern),
          inSet("destination", SET.istio),
          inSet("source", SET.istio),
        ],
        action: { kind: "dscp", value: config.istioDscp },
      });
  postrouting.push(
    omittable({
      match: [
        inSet("source", SET.dscpSources),
        notInSet("destination", SET.allPools),
        notInSet("destination", SET.thisHost),
      ],
      action: jump("cali-egress-dscp"),
      comments: ["set dscp for traffic leaving cluster."],
    }),
    { match: [markSet(marks.accept)], action: returnAction },
  );
  if (config.ipvs)
    postrouting.push({
      match: [{ kind: "mark", value: 0, mask: marks.endpoint, negated: true }],
      action: returnAction,
    });
  postrouting.push(
    { action: clearMark(marks.all) },
    jumpToHostPolicy("cali-to-host-endpoint", { kind: "ctDnat" }),
    acceptedByHostPolicy(config, returnAction),
  );
  return [hostChain("cali-PREROUTING", prerouting), hostChain("cali-POSTROUTING", postrouting)];
}

// --- nat ---------------------------------------------------------------------------------------------------------------

export function natHooks(): HookRules {
  // POSTROUTING is appended, because kube-proxy must have cleared its masquerade mark before.
  return {
    insert: new Map([jumpFromHook("PREROUTING"), jumpFromHook("OUTPUT")]),
    append: new Map([jumpFromHook("POSTROUTING")]),
  };
}

export function natChains(config: RulesConfig, version: IpVersion): RuleChain[] {
  const prerouting: Rule[] = [{ action: jump("cali-fip-dnat") }];
  const metadata = config.openstack?.metadataAddress;
  if (version === 4 && metadata !== undefined && config.openstack !== undefined)
    prerouting.push({
      match: [protocolIs("tcp"), destinationPort("tcp", 80), isNet("destination", "169.254.169.254/32" as Cidr)],
      action: { kind: "dnat", to: metadata, port: config.openstack.metadataPort },
    });
  const postrouting: Rule[] = [{ action: jump("cali-fip-snat") }, { action: jump("cali-nat-outgoing") }];
  for (const tunnel of tunnels(config, version)) {
    // Packets of the host that enter a tunnel need the address of the tunnel, or replies would take another path.
    const leaving: readonly Match[] = [
      outInterface(tunnel),
      { kind: "localAddress", side: "source", negated: true, onOutInterface: true },
      isLocal("source"),
    ];
    if (config.vxlanEnabled || config.vxlanEnabledV6)
      postrouting.push({
        match: [protocolIs(17), ...leaving],
        action: { kind: "masquerade", ports: portsAvoiding(config.vxlanPort) },
      });
    postrouting.push({ match: leaving, action: { kind: "masquerade" } });
  }
  return [
    hostChain("cali-PREROUTING", prerouting),
    hostChain("cali-OUTPUT", [{ action: jump("cali-fip-dnat") }]),
    hostChain("cali-POSTROUTING", postrouting),
  ];
}

function tunnels(config: RulesConfig, version: IpVersion): string[] {
  const found: string[] = [];
  if (version === 4 && config.ipipEnabled && config.ipipTunnelAddress !== undefined) found.push("tunl0");
  if (version === 4 && config.vxlanEnabled && config.vxlanTunnelAddress !== undefined) found.push("vxlan.calico");
  if (version === 6 && config.vxlanEnabledV6 && config.vxlanTunnelAddressV6 !== undefined)
    found.push("vxlan-v6.calico");
  if (version === 4 && config.wireguardEnabled) found.push(config.wireguardInterface);
  if (version === 6 && config.wireguardEnabledV6) found.push(config.wireguardInterfaceV6);
  return found;
}

/** Returns the larger range below or above the VXLAN port. With this source port, the kernel would treat a reply as VXLAN. */
function portsAvoiding(port: number): PortRange {
  return port - 1 - 1024 > 65535 - (port + 1) ? { first: 1024, last: port - 1 } : { first: port + 1, last: 65535 };
}
