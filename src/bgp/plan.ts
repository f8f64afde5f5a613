// Computes the BGP plan of a node from the cluster's state and the node's local inputs. It is a pure function, so any host can
// compute the plan of any node.
//
//   nodes, configurations, peers ──► sessions ──► peers
//   filters ──────────────────────► functions ──┘   │
//   pools, blocks, services ──────► route policy ───┴──► plan ──► BIRD's configuration
import { hostCidr, ipVersion } from "../lib/ip/ip.ts";
import { DEFAULT_ROUTE_PRIORITY, type Node, type SecretRef } from "../model/index.ts";
import { filterCalls, filterFunctions } from "./filter-plan.ts";
import { MAX_LOCAL_PREFERENCE } from "./local-preference.ts";
import type { BgpPlan, DebugSetting, FilterFunction, PlannedPeer } from "./plan-types.ts";
import { routePolicy, type ServiceRoutes, serviceRanges } from "./route-policy.ts";
import { routerIdOf } from "./router-id.ts";
import { asNumberOf, type LocalWorkload, listenPortOf, type Session, sessionsOf } from "./sessions.ts";
import type { BgpState, Problem } from "./state.ts";

const EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers";
const IGNORED_INTERFACES = ["cali*", "kube-ipvs*"];

/** Inputs that are not part of the cluster's state. */
export interface LocalInputs {
  /** CALICO_ROUTER_ID */
  readonly routerId?: string;
  /** CALICO_ADVERTISE_CLUSTER_IPS; replaces the configured ranges. */
  readonly clusterIps?: readonly string[];
  readonly workloads?: readonly LocalWorkload[];
  /**
   * Whether a secret with a usable password exists; otherwise the session has no password, which is a problem of the plan.
   * "unknown" if the caller does not read secrets: the session has no password, and the caller reports that.
   */
  readonly hasSecret?: (ref: SecretRef) => boolean | "unknown";
  /** Whether a secret exists but is not usable as a password. The session is then left out. */
  readonly isUnusableSecret?: (ref: SecretRef) => boolean;
  /** Addresses of single services that this node announces. */
  readonly serviceAddresses?: readonly string[];
}

export class NoSuchNode extends Error {
  override readonly name = "NoSuchNode";
  constructor(readonly node: string) {
    super(`node ${node} does not exist`);
  }
}

export function plan(state: BgpState, nodeName: string, inputs: LocalInputs = {}): BgpPlan {
  const node = state.nodes.get(nodeName);
  if (node === undefined) throw new NoSuchNode(nodeName);
  const problems: Problem[] = [...state.problems];
  const configuration = state.configurations.get("default");
  const families = ([4, 6] as const).filter((family) => node.networks[family] !== undefined);
  const functions = filterFunctions(state, problems);
  const sessions = sessionsOf(state, node, inputs.workloads ?? [], problems).filter((session) => {
    const { address, filters, because, password } = session;
    const unreadable = filters.find((name) => state.unreadableFilters.has(name));
    if (unreadable !== undefined)
      problems.push({
        object: because,
        problem: `session with ${address} left out: its BGPFilter ${unreadable} is invalid`,
      });
    const isUnusable = password !== undefined && inputs.isUnusableSecret?.(password) === true;
    if (isUnusable)
      problems.push({
        object: because,
        problem: `session with ${address} left out: key ${password.key} of secret ${password.name} is not usable as a password; want one line of at most 80 bytes without quotes`,
      });
    return unreadable === undefined && !isUnusable && node.networks[ipVersion(address)] !== undefined;
  });
  const peers = sessions
    .map((session) => plannedPeer({ state, node, functions, inputs, problems }, session))
    .sort(byFamilyAndName);
  const staticRoutes = sessions
    .flatMap(({ address, reachableBy }) =>
      reachableBy === undefined ? [] : [{ prefix: hostCidr(address), via: reachableBy }],
    )
    .sort((a, b) => ipVersion(a.prefix) - ipVersion(b.prefix) || (a.prefix < b.prefix ? -1 : 1));
  const ranges = serviceRanges(configuration, inputs.clusterIps, node.labels[EXCLUDE_LABEL] === "true");
  const services: ServiceRoutes = { ...ranges, addresses: inputs.serviceAddresses ?? [] };
  const listenAddress = (family: 4 | 6) =>
    configuration?.bindMode === "NodeIP" ? (node.networks[family]?.address ?? null) : null;
  return {
    node: nodeName,
    families,
    routerId: routerIdOf(node, inputs.routerId, problems),
    localAs: families.length === 0 ? null : asNumberOf(state, node),
    listenPort: listenPortOf(state, nodeName) ?? null,
    listenAddress: { 4: listenAddress(4), 6: listenAddress(6) },
    interfaces: { ignored: [...(configuration?.ignoredInterfaces ?? []), ...IGNORED_INTERFACES], watched: ["*"] },
    debug: debugOf(state, nodeName),
    peers,
    staticRoutes,
    ...routePolicy(
      state,
      node,
      services,
      (family) => staticRoutes.some(({ via }) => ipVersion(via) === family),
      problems,
    ),
    bgpFilters: functions.filter(({ family }) => families.includes(family)),
    problems,
  };
}

interface PeerContext {
  readonly state: BgpState;
  readonly node: Node;
  /** Functions of all filters. */
  readonly functions: readonly FilterFunction[];
  readonly inputs: LocalInputs;
  readonly problems: Problem[];
}

function plannedPeer({ state, node, functions, inputs, problems }: PeerContext, session: Session): PlannedPeer {
  const family = ipVersion(session.address);
  const ownAs = session.localAs ?? asNumberOf(state, node);
  const sameAs = session.asNumber === ownAs;
  const priority = state.configurations.get("default")?.routePriority[family] ?? DEFAULT_ROUTE_PRIORITY;
  const isClient = sameAs && node.clusterId !== undefined && session.clusterId !== node.clusterId;
  return {
    family,
    name: protocolName(session),
    kind: session.kind,
    neighbor: session.address,
    port: session.port ?? null,
    remoteAs: session.asNumber,
    localAs: session.localAs ?? null,
    sourceAddress: session.useNodeAddress ? (node.networks[family]?.address ?? null) : null,
    multihop: session.ttlSecurity ?? true,
    ttlSecurity: session.ttlSecurity ?? null,
    importFilters: filterCalls(functions, session.filters, { direction: "import", family, sameAs }),
    import: { preferWhenLocalPrefAbove: MAX_LOCAL_PREFERENCE - priority, preference: 200, otherwise: "accept" },
    exportFilters: filterCalls(functions, session.filters, { direction: "export", family, sameAs }),
    export: { defaultMetric: priority, sameAs, otherwise: "reject" },
    passive: session.passive,
    gracefulRestart: { mode: "on", timeSeconds: session.restartSeconds ?? null },
    keepaliveSeconds: session.keepaliveSeconds ?? null,
    routeReflectorClient: isClient,
    rrClusterId: isClient ? (node.clusterId ?? null) : null,
    password: passwordOf(session, inputs, problems),
    nextHop: nextHopOf(session, sameAs),
    numAllowLocalAs: session.numAllowedLocalAs || null,
    addPaths: true,
    because: session.because,
  };
}

const PREFIX = { mesh: "Mesh_", global: "Global_", node: "Node_", localWorkload: "Local_Workload_" } as const;

/** Name of the BIRD protocol. The mesh has one session per address, so its names need no port. */
function protocolName(session: Session): string {
  const port = session.port === undefined || session.kind === "mesh" ? "" : `_port_${session.port}`;
  return PREFIX[session.kind] + session.address.replaceAll(/[.:]/g, "_") + port;
}

function nextHopOf(session: Session, sameAs: boolean): PlannedPeer["nextHop"] {
  if (session.nextHopMode === "Self") return "self";
  if (session.nextHopMode === "Keep") return "keep";
  if (session.nextHopMode === undefined && session.keepOriginalNextHop && !sameAs) return "keep";
  return "default";
}

function passwordOf(session: Session, inputs: LocalInputs, problems: Problem[]): string | null {
  if (session.password === undefined) return null;
  const { name, key } = session.password;
  const exists = inputs.hasSecret?.(session.password);
  if (exists === true) return `${name}/${key}`;
  if (exists === "unknown") return null;
  problems.push({
    object: session.because,
    problem: `secret ${name} with key ${key} not found: the session with ${session.address} has no password`,
  });
  return null;
}

/** All levels other than `debug` and `info` disable BIRD's debug output. */
function debugOf(state: BgpState, node: string): BgpPlan["debug"] {
  const severity =
    state.configurations.get(`node.${node}`)?.logSeverity ?? state.configurations.get("default")?.logSeverity ?? "Info";
  const level = severity.toLowerCase();
  if (level === "debug") return { interfaces: "all", peers: "all" };
  if (level !== "info") return { interfaces: "off", peers: "off" };
  const peers: DebugSetting = ["states", "routes", "filters", "events"];
  return { interfaces: ["states"], peers };
}

function byFamilyAndName(a: PlannedPeer, b: PlannedPeer): number {
  return a.family - b.family || (a.name < b.name ? -1 : 1);
}
