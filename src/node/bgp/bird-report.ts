// Reads BIRD's state and converts it to the status of CalicoNodeStatus.
import {
  BIRD_SOCKETS,
  type BirdRoute,
  type BirdSession,
  type BirdStatus,
  BirdUnreachable,
  bgpSessions,
  connectBird,
  parseProtocols,
  parseRoutes,
  parseStatus,
} from "../../bgp/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { ResourceOf } from "../../model/index.ts";

export type NodeStatusResource = ResourceOf<"CalicoNodeStatus">;
export type NodeStatus = NonNullable<NodeStatusResource["status"]>;
export type StatusClass = NodeStatusResource["spec"]["classes"][number];

/** State of one family's BIRD. */
export interface BirdFacts {
  readonly status: BirdStatus;
  readonly sessions: readonly BirdSession[];
  readonly routes: readonly BirdRoute[];
}

/** @returns undefined if BIRD does not respond */
export async function readBirdFacts(
  version: IpVersion,
  sockets = BIRD_SOCKETS,
  include: { readonly routes: boolean } = { routes: true },
): Promise<BirdFacts | undefined> {
  try {
    using control = await connectBird(sockets[version]);
    return {
      status: parseStatus(await control.request("show status")),
      sessions: bgpSessions(parseProtocols(await control.request("show protocols all"))),
      routes: include.routes ? parseRoutes(await control.request("show route")) : [],
    };
  } catch (error) {
    if (error instanceof BirdUnreachable) return undefined;
    throw error;
  }
}

export type Facts = Readonly<Record<IpVersion, BirdFacts | undefined>>;

/** Fills in only the requested classes; fields of a family whose BIRD does not respond stay empty. */
export function statusOf(classes: readonly StatusClass[], facts: Facts, now: Date): NodeStatus {
  const has = (name: StatusClass) => classes.includes(name);
  return {
    lastUpdated: now.toISOString().replace(/\.\d+/, ""),
    agent: has("Agent") ? { birdV4: daemonOf(facts[4]), birdV6: daemonOf(facts[6]) } : { birdV4: {}, birdV6: {} },
    bgp: {
      numberEstablishedV4: has("BGP") ? established(facts[4], true) : 0,
      numberNotEstablishedV4: has("BGP") ? established(facts[4], false) : 0,
      numberEstablishedV6: has("BGP") ? established(facts[6], true) : 0,
      numberNotEstablishedV6: has("BGP") ? established(facts[6], false) : 0,
      ...(has("BGP") && {
        ...nonEmptyList("peersV4", peersOf(facts[4])),
        ...nonEmptyList("peersV6", peersOf(facts[6])),
      }),
    },
    routes: has("Routes")
      ? { ...nonEmptyList("routesV4", routesOf(facts[4])), ...nonEmptyList("routesV6", routesOf(facts[6])) }
      : {},
  };
}

/** Omits an empty list. */
const nonEmptyList = <N extends string, T>(name: N, list: T[]): { [P in N]?: T[] } =>
  (list.length === 0 ? {} : { [name]: list }) as { [P in N]?: T[] };

function daemonOf(facts: BirdFacts | undefined) {
  if (facts === undefined) return { state: "NotReady" as const };
  const { version, routerId, lastReboot, lastReconfiguration } = facts.status;
  return {
    state: "Ready" as const,
    version,
    routerID: routerId,
    lastBootTime: lastReboot,
    lastReconfigurationTime: lastReconfiguration,
  };
}

const TYPES = { mesh: "NodeMesh", node: "NodePeer", global: "GlobalPeer" } as const;
type PeerKind = keyof typeof TYPES;
const isPeer = (session: BirdSession): session is BirdSession & { readonly kind: PeerKind } => session.kind in TYPES;
export const peers = (facts: BirdFacts | undefined) => (facts?.sessions ?? []).filter(isPeer);

const established = (facts: BirdFacts | undefined, isUp: boolean): number =>
  peers(facts).filter(({ bgpState }) => (bgpState === "Established") === isUp).length;

const STATES = ["Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established", "Close"] as const;

function peersOf(facts: BirdFacts | undefined) {
  return peers(facts).map(({ neighbor, name, kind, bgpState, since }) => {
    const state = STATES.find((known) => known === bgpState); // CalicoNodeStatus has no value for BIRD's Passive
    return { peerIP: neighbor ?? name, type: TYPES[kind], since, state };
  });
}

function routesOf(facts: BirdFacts | undefined) {
  const byName = new Map(facts?.sessions.map((session) => [session.name, session]));
  return (facts?.routes ?? []).map((route) => ({
    type: route.isBest ? ("FIB" as const) : ("RIB" as const),
    destination: route.destination,
    gateway: route.gateway ?? "N/A",
    interface: route.interface ?? "",
    learnedFrom: sourceOf(route.protocol, byName.get(route.protocol)),
  }));
}

function sourceOf(protocol: string, session: BirdSession | undefined) {
  if (session !== undefined) {
    const sourceType = session.kind === "mesh" ? ("NodeMesh" as const) : ("BGPPeer" as const);
    return { sourceType, peerIP: session.neighbor };
  }
  if (protocol.startsWith("kernel")) return { sourceType: "Kernel" as const };
  if (protocol.startsWith("direct")) return { sourceType: "Direct" as const };
  return { sourceType: "Static" as const };
}
