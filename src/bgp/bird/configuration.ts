// BIRD 2's configuration of one family, from the plan and nothing else. BIRD runs once per family, each with its own
// file and socket.
// https://bird.network.cz/?get_doc&v=20&f=bird.html
import { type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { MAX_LOCAL_PREFERENCE } from "../local-preference.ts";
import type { BgpPlan, DebugSetting, FilterCall, PlannedPeer } from "../plan-types.ts";
import { aggregationFunction, communitiesFunction, exportFunction, filterFunction, kernelFilter } from "./filters.ts";
import { block, joinLines, type Lines, prefix, remark, symbol } from "./text.ts";

const RESTART_WAIT_SECONDS = 60;

export interface RenderInputs {
  /** A session's password by `secret/key`. Without one that BIRD can read (`isUsablePassword`) there is no session. */
  readonly password: (secret: string) => string | undefined;
}

/** BIRD's strings know no escapes; the kernel takes keys of up to 80 bytes. */
export const isUsablePassword = (text: string): boolean =>
  !/["\n\r\0]/.test(text) && Buffer.byteLength(text) <= 80 && text !== "";

export function birdConfiguration(plan: BgpPlan, family: IpVersion, inputs: RenderInputs): string {
  const channel = `ipv${family}`;
  const isSpeaking = plan.families.includes(family);
  return joinLines([
    remark(`BIRD's part for IPv${family} of node ${plan.node}. Written by the BGP service; changes are lost.`),
    `router id ${plan.routerId};`,
    // Until all neighbours are back after a restart, or this long, the kernel's routes stay as they are. BIRD's own
    // limit is four minutes, for which one dead neighbour would keep every new route out.
    `graceful restart wait ${RESTART_WAIT_SECONDS};`,
    // To whom started it; the traces that the `debug` lines ask for only where they were meant to be read.
    plan.debug.peers === "all" ? "log stderr all;" : "log stderr { fatal, bug, error, warning, info, auth, remote };",
    "",
    ...communitiesFunction(plan, family),
    ...aggregationFunction(plan, family),
    ...exportFunction(plan, family),
    ...kernelFilter(plan, family),
    "",
    ...staticProtocol(plan, family),
    ...block("protocol kernel", [
      "learn;",
      "persist;",
      "scan time 2;",
      // Else every route gets metric 32 and ours is hidden.
      "metric 0;",
      "merge paths on;",
      "graceful restart;",
      ...block(channel, ["import all;", "export filter calico_kernel_programming;"], "};"),
    ]),
    ...block("protocol device", [...debugLine(plan.debug.interfaces), "scan time 2;"]),
    ...block("protocol direct", [...debugLine(plan.debug.interfaces), interfaceLine(plan), `${channel};`]),
    "",
    ...(isSpeaking
      ? speaker(plan, family, inputs)
      : [remark(`This node has no IPv${family} address: it speaks no BGP for it.`)]),
  ]);
}

function interfaceLine(plan: BgpPlan): string {
  const names = [
    ...plan.interfaces.ignored.map((name) => `-"${name}"`),
    ...plan.interfaces.watched.map((name) => `"${name}"`),
  ];
  return `interface ${names.join(", ")};`;
}

const debugLine = (setting: DebugSetting): Lines =>
  setting === "off" ? [] : [`debug ${typeof setting === "string" ? setting : `{ ${setting.join(", ")} }`};`];

function staticProtocol(plan: BgpPlan, family: IpVersion): Lines {
  if (!plan.staticProtocol[family]) return [];
  return block("protocol static", [
    `ipv${family};`,
    ...plan.staticBlackholes
      .map(prefix)
      .filter((cidr) => ipVersion(cidr) === family)
      .map((cidr) => `route ${cidr} blackhole;`),
    ...plan.staticRoutes
      .filter(({ via }) => ipVersion(via) === family)
      .map((route) => `route ${route.prefix} via ${route.via};`),
  ]);
}

function speaker(plan: BgpPlan, family: IpVersion, inputs: RenderInputs): Lines {
  const port = plan.listenPort === null ? "" : ` port ${plan.listenPort}`;
  const address = plan.listenAddress[family];
  return [
    ...block("template bgp bgp_template", [
      ...debugLine(plan.debug.peers),
      'description "Connection to BGP peer";',
      `local${address === null ? "" : ` ${address}`}${port} as ${plan.localAs};`,
      ...(address === null ? [] : ["strict bind yes;"]),
      "graceful restart;",
      "connect delay time 2;",
      "connect retry time 5;",
      "error wait time 5,30;",
    ]),
    ...plan.bgpFilters.filter((filter) => filter.family === family).flatMap(filterFunction),
    ...sharedFilters(plan, family),
    ...plan.peers.filter((peer) => peer.family === family).flatMap((peer) => ["", ...session(peer, inputs)]),
  ];
}

function session(peer: PlannedPeer, inputs: RenderInputs): Lines {
  const password = peer.password === null ? undefined : inputs.password(peer.password);
  // Secrets change while we write: one that is gone or cannot be written by now leaves no session open to all.
  if (peer.password !== null && (password === undefined || !isUsablePassword(password)))
    return [remark(`${peer.because}: no session with ${peer.neighbor} without its password`)];
  const when = (condition: boolean, ...lines: readonly string[]): readonly string[] => (condition ? lines : []);
  return [
    remark(peer.because),
    ...block(`protocol bgp ${symbol(peer.name)} from bgp_template`, [
      ...when(peer.localAs !== null, `local as ${peer.localAs};`),
      `neighbor ${peer.neighbor}${peer.port === null ? "" : ` port ${peer.port}`} as ${peer.remoteAs};`,
      ...when(peer.sourceAddress !== null, `source address ${peer.sourceAddress};`),
      peer.ttlSecurity === null ? "ttl security off;" : "ttl security on;",
      peer.multihop === true ? "multihop;" : `multihop ${peer.multihop};`,
      ...when(peer.passive, "passive on;"),
      ...when(peer.gracefulRestart.timeSeconds !== null, `graceful restart time ${peer.gracefulRestart.timeSeconds};`),
      ...when(peer.keepaliveSeconds !== null, `keepalive time ${peer.keepaliveSeconds};`),
      ...when(peer.routeReflectorClient, "rr client;", `rr cluster id ${peer.rrClusterId};`),
      ...when(password !== undefined, `password "${password}";`),
      ...when(peer.numAllowLocalAs !== null, `allow local as ${peer.numAllowLocalAs};`),
      ...block(
        `ipv${peer.family}`,
        [
          "gateway recursive;",
          "add paths on;",
          ...when(peer.nextHop !== "default", `next hop ${peer.nextHop};`),
          // What most sessions share has a name: a mesh of a thousand is then as long as it must be.
          ...(peer.importFilters.length === 0
            ? [`import filter ${IMPORT};`]
            : block("import filter", importFilter(peer), "};")),
          ...(peer.exportFilters.length === 0
            ? [`export filter ${exportName(peer.export.sameAs)};`]
            : block("export filter", exportFilter(peer), "};")),
        ],
        "};",
      ),
    ]),
  ];
}

const IMPORT = "calico_import";
const exportName = (sameAs: boolean): string => `calico_export_${sameAs ? "internal" : "external"}`;

/**
 * For sessions without filters of their own; they differ in nothing but whether the other side is of our AS. Every route
 * learnt is judged once per session, so what can never be announced is turned away before anything is computed.
 */
function sharedFilters(plan: BgpPlan, family: IpVersion): Lines {
  const peers = plan.peers.filter((peer) => peer.family === family);
  const importing = peers.find((peer) => peer.importFilters.length === 0);
  const exporting = [true, false].flatMap(
    (sameAs) => peers.find((peer) => peer.exportFilters.length === 0 && peer.export.sameAs === sameAs) ?? [],
  );
  return [
    ...(importing === undefined ? [] : block(`filter ${IMPORT}`, importFilter(importing))),
    ...exporting.flatMap((peer) =>
      block(`filter ${exportName(peer.export.sameAs)}`, [...turnAway(plan, family), ...exportFilter(peer)]),
    ),
  ];
}

/** Nothing outside these can be announced: blocks, and what some step accepts. */
function turnAway(plan: BgpPlan, family: IpVersion): Lines {
  const accepted = plan.bgpExport[family].flatMap((step) =>
    "within" in step && step.action === "accept" ? [step.within] : [],
  );
  const blocks = plan.aggregation.map((entry) => entry.block).filter((cidr) => ipVersion(cidr) === family);
  const all = [...new Set([...accepted.map(prefix), ...blocks])];
  return all.length === 0 ? ["reject;"] : [`if (net !~ [ ${all.map((text) => `${text}+`).join(", ")} ]) then reject;`];
}

const call = (filter: FilterCall): string => `${symbol(filter.function)}(${filter.sameAs ?? ""});`;

function importFilter(peer: PlannedPeer): Lines {
  const { preferWhenLocalPrefAbove, preference } = peer.import;
  return [
    // A peer that sends the metric 0 of a new pod's first route (see exportFilter) sends the normal metric soon after.
    // BIRD would write one kernel route for each of the two metrics.
    `if (defined(bgp_local_pref) && bgp_local_pref = ${MAX_LOCAL_PREFERENCE}) then bgp_local_pref = ${preferWhenLocalPrefAbove};`,
    ...peer.importFilters.map(call),
    `if (defined(bgp_local_pref) && bgp_local_pref > ${preferWhenLocalPrefAbove}) then preference = ${preference};`,
    "accept;",
  ];
}

/**
 * The kernel's metric travels as local preference, so that the better route wins everywhere. The first route to a pod is
 * the CNI plugin's, without a metric (0), until Felix replaces it with one of the normal metric. Both are announced with
 * the normal metric, so that peers do not see the metric of a borrowed address change.
 */
function exportFilter(peer: PlannedPeer): Lines {
  return [
    ...block("if (source = RTS_BGP && defined(bgp_local_pref)) then", [
      `krt_metric = ${MAX_LOCAL_PREFERENCE} - bgp_local_pref;`,
    ]),
    ...block("else", [
      `if (!defined(krt_metric) || krt_metric = 0) then krt_metric = ${peer.export.defaultMetric};`,
      `bgp_local_pref = ${MAX_LOCAL_PREFERENCE} - krt_metric;`,
    ]),
    ...peer.exportFilters.map(call),
    `calico_export_to_bgp_peers(${peer.export.sameAs});`,
    "reject;",
  ];
}
