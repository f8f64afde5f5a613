// The chains every node has, from the kernel's hooks to the endpoints' dispatch.
import { type Cidr, type IpAddress, type IpVersion } from "../../lib/ip.ts";
import { type RulesConfig, SET, vxlanEnabledFor, workloadPatterns } from "./config.ts";
import { denyAction } from "./endpoint-chains.ts";
import {
  accept,
  type Action,
  chain,
  clearMark,
  destinationPort,
  established,
  goto,
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

export interface Hooks {
  /** At the top or bottom of the kernel's chain, by configuration. */
  readonly insert: ReadonlyMap<string, readonly Rule[]>;
  /** Always behind everybody's. */
  readonly append: ReadonlyMap<string, readonly Rule[]>;
}

/** The rule is no reason to keep any packet: what it leads to, or marks, only lets pass, translates or classifies. */
const dispensable = (rule: Rule): Rule => ({ ...rule, ifRefused: "leaveOut" });
const hook = (name: string): readonly [string, readonly Rule[]] => [name, [{ action: jump(`cali-${name}`) }]];
const allow = (what: "accept" | "return"): Action => (what === "accept" ? accept : returnAction);
const accepted = (config: RulesConfig, action: Action): Rule => ({
  match: [markSet(config.marks.accept)],
  action,
  comments: ["Host endpoint policy accepted packet."],
});

// --- raw -----------------------------------------------------------------------------------------------------------

export function rawHooks(): Hooks {
  return { insert: new Map([hook("PREROUTING"), hook("OUTPUT")]), append: new Map() };
}

export function rawChains(config: RulesConfig, version: IpVersion): RuleChain[] {
  const { marks } = config;
  const vxlan: Rule[] = config.vxlanEnabled || config.vxlanEnabledV6 ? [vxlanNotrack(config, version)].flat() : [];
  const prerouting: Rule[] = [{ action: clearMark(marks.all) }];
  if (config.wireguardHostEncryption && marks.wireguard !== 0)
    prerouting.push(dispensable({ action: jump("cali-wireguard-incoming-mark") }));
  prerouting.push(...vxlan);
  for (const pattern of workloadPatterns(config))
    prerouting.push({ match: [inInterface(pattern)], action: setMark(marks.scratch0) });
  prerouting.push(dispensable({ match: [markSet(marks.scratch0)], action: jump("cali-rpf-skip") }));
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
    // Rejecting is not possible before routing: anti-spoofing always drops.
    { match: [markSet(marks.scratch0), { kind: "reversePathFails" }], action: drop },
    { match: [markClear(marks.scratch0)], action: jump("cali-from-host-endpoint") },
    { match: [markSet(marks.accept)], action: accept },
  );
  const output: Rule[] = [
    { action: clearMark(marks.all) },
    { action: jump("cali-to-host-endpoint") },
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
    dispensable({ action: setMark(config.marks.wireguard) }),
  ]);
}

// --- mangle ----------------------------------------------------------------------------------------------------------

export function mangleHooks(): Hooks {
  return { insert: new Map([hook("PREROUTING"), hook("POSTROUTING")]), append: new Map() };
}

export function mangleChains(config: RulesConfig): RuleChain[] {
  const { marks } = config;
  const allowed = allow(config.mangleAllow);
  const prerouting: Rule[] = [
    { match: [established], action: allowed },
    { match: [markSet(marks.accept)], action: allowed },
    { action: jump("cali-from-host-endpoint") },
    accepted(config, allowed),
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
    dispensable({
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
    { match: [{ kind: "ctDnat" }], action: jump("cali-to-host-endpoint") },
    accepted(config, returnAction),
  );
  return [hostChain("cali-PREROUTING", prerouting), hostChain("cali-POSTROUTING", postrouting)];
}

// --- nat ---------------------------------------------------------------------------------------------------------------

export function natHooks(): Hooks {
  // kube-proxy must have cleared its masquerade mark before we look.
  return { insert: new Map([hook("PREROUTING"), hook("OUTPUT")]), append: new Map([hook("POSTROUTING")]) };
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
    // The host's own packets into a tunnel must carry the tunnel's address, or answers would come another way.
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

/** A source port equal to the tunnel's would make the kernel take the packet for a tunnelled one: the wider side of it. */
function portsAvoiding(port: number): PortRange {
  return port - 1 - 1024 > 65535 - (port + 1) ? { first: 1024, last: port - 1 } : { first: port + 1, last: 65535 };
}

// --- filter ------------------------------------------------------------------------------------------------------------

export function filterHooks(config: RulesConfig): Hooks {
  return {
    insert: new Map([hook("INPUT"), hook("FORWARD"), hook("OUTPUT")]),
    append: new Map([
      [
        "FORWARD",
        [
          {
            match: [markSet(config.marks.accept)],
            action: allow(config.filterAllow),
            comments: ["Policy explicitly accepted packet."],
          },
          // Tells mangle POSTROUTING that the packet was forwarded.
          dispensable({ action: setMark(config.marks.accept) }),
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
    { match: [markClear(marks.accept)], action: jump("cali-from-hep-forward") },
  );
  for (const pattern of workloadPatterns(config))
    rules.push(
      { match: [inInterface(pattern)], action: jump("cali-from-wl-dispatch"), ifRefused: "close" },
      { match: [outInterface(pattern)], action: jump("cali-to-wl-dispatch"), ifRefused: "close" },
    );
  rules.push({ action: jump("cali-to-hep-forward") }, { action: jump("cali-cidr-block") });
  return hostChain("cali-FORWARD", rules);
}

function inputRules(config: RulesConfig, version: IpVersion): Rule[] {
  const { marks } = config;
  const allowed = allow(config.filterAllow);
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
    rules.push({ match: [inInterface(pattern)], action: goto("cali-wl-to-host"), ifRefused: "close" });
  rules.push(
    { match: [markSet(marks.accept)], action: allowed },
    { action: clearMark(marks.all) },
    { action: jump("cali-from-host-endpoint") },
    accepted(config, allowed),
  );
  return rules;
}

/** Neighbour discovery and listener reports: without them a workload has no IPv6 at all. */
const ICMPV6_TYPES = [130, 131, 132, 133, 135, 136] as const;

function workloadToHostRules(config: RulesConfig, version: IpVersion): Rule[] {
  const allowed = allow(config.filterAllow);
  const rules: Rule[] = [];
  if (version === 6)
    for (const type of ICMPV6_TYPES)
      rules.push(dispensable({ match: [protocolIs(58), { kind: "icmp", type }], action: allowed }));
  if (config.openstack !== undefined) {
    const { metadataAddress, metadataPort } = config.openstack;
    if (version === 4 && metadataAddress !== undefined)
      rules.push(
        dispensable({
          match: [protocolIs("tcp"), isAddress("destination", metadataAddress), destinationPort("tcp", metadataPort)],
          action: allowed,
        }),
      );
    const [client, server] = version === 4 ? [68, 67] : [546, 547];
    rules.push(
      dispensable({
        match: [protocolIs("udp"), sourcePort("udp", client), destinationPort("udp", server)],
        action: allowed,
      }),
      dispensable({ match: [protocolIs("udp"), destinationPort("udp", 53)], action: allowed }),
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
  const allowed = allow(config.filterAllow);
  const rules: Rule[] = [{ match: [markSet(marks.accept)], action: allowed }];
  if (config.ipvs)
    rules.push({
      match: [{ kind: "mark", value: 0, mask: marks.endpoint, negated: true }],
      action: goto("cali-forward-endpoint-mark"),
    });
  // The host may always talk to its workloads: health checks come this way.
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
    // A packet with a new destination still has its old interface here; mangle POSTROUTING sees the new one.
    { match: [{ kind: "ctDnat", negated: true }], action: jump("cali-to-host-endpoint") },
    accepted(config, allowed),
  );
  return rules;
}

const wireguardFor = (config: RulesConfig, version: IpVersion): boolean =>
  version === 4 ? config.wireguardEnabled : config.wireguardEnabledV6;
const wireguardPort = (config: RulesConfig, version: IpVersion): number =>
  version === 4 ? config.wireguardPort : config.wireguardPortV6;
