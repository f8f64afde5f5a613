// Determines the sessions of a node: those of the mesh, and those of BGPPeers, in both directions.
//
// If several sources define a session with the same address and port, the first has precedence: BGPPeers for all nodes, then
// those for some nodes, each sorted by name; then the reverse direction of BGPPeers; then the mesh. Both ends of a link
// therefore agree on one session.
import { type IpAddress, type IpVersion, ipVersion } from "../lib/ip/ip.ts";
import { type BgpPeer, isForNode, type Node, type SecretRef } from "../model/index.ts";
import type { BgpState, Problem } from "./state.ts";

const DEFAULT_AS = 64512;
const BGP_PORT = 179;

const sessionKey = (address: IpAddress, port: number | undefined): string => `${address} ${port ?? BGP_PORT}`;

/** A session, independent of BIRD. */
export interface Session {
  readonly kind: "mesh" | "global" | "node" | "localWorkload";
  readonly address: IpAddress;
  readonly port: number | undefined;
  readonly asNumber: number;
  readonly localAs: number | undefined;
  /** Cluster ID of the peer, if it is a route reflector of this cluster. */
  readonly clusterId: string | undefined;
  readonly useNodeAddress: boolean;
  readonly passive: boolean;
  readonly password: SecretRef | undefined;
  readonly restartSeconds: number | undefined;
  readonly keepaliveSeconds: number | undefined;
  readonly ttlSecurity: number | undefined;
  readonly reachableBy: IpAddress | undefined;
  readonly filters: readonly string[];
  readonly nextHopMode: BgpPeer["nextHopMode"];
  readonly keepOriginalNextHop: boolean;
  readonly numAllowedLocalAs: number | undefined;
  readonly because: string;
}

/** A workload of this node that has BGP sessions, and its BGPPeer. */
export interface LocalWorkload {
  readonly peerName: string;
  readonly addresses: readonly IpAddress[];
}

export function sessionsOf(
  state: BgpState,
  node: Node,
  workloads: readonly LocalWorkload[],
  problems: Problem[],
): readonly Session[] {
  const finder = new SessionFinder(state, node, workloads, problems);
  return [...finder.explicit(), ...finder.mesh()];
}

class SessionFinder {
  readonly #state: BgpState;
  readonly #node: Node;
  readonly #workloads: readonly LocalWorkload[];
  readonly #problems: Problem[];
  readonly #found = new Map<string, Session>();

  constructor(state: BgpState, node: Node, workloads: readonly LocalWorkload[], problems: Problem[]) {
    this.#state = state;
    this.#node = node;
    this.#workloads = workloads;
    this.#problems = problems;
  }

  explicit(): readonly Session[] {
    const peers = [...this.#state.peers.values()];
    const isGlobal = (peer: BgpPeer) => peer.node === undefined && peer.nodeSelector === undefined;
    for (const peer of [...peers.filter(isGlobal), ...peers.filter((each) => !isGlobal(each))])
      if (isForNode(peer, this.#node))
        for (const session of this.#forward(peer, isGlobal(peer))) this.#add(session, peer);
    for (const peer of peers) for (const session of this.#reverse(peer)) this.#add(session, peer, true);
    return [...this.#found.values()];
  }

  #add(session: Session, peer: BgpPeer, isReverse = false): void {
    if (this.#isOwn(session.address)) return;
    const key = sessionKey(session.address, session.port);
    const first = this.#found.get(key);
    if (first === undefined) this.#found.set(key, session);
    else if (!isReverse)
      this.#report(peer, `${session.address} is already a peer because of ${first.because}: not used`);
  }

  #isOwn(address: IpAddress): boolean {
    return this.#node.networks[ipVersion(address)]?.address === address;
  }

  /** Sessions of a BGPPeer that selects this node. */
  *#forward(peer: BgpPeer, isGlobal: boolean): Generator<Session> {
    const kind = isGlobal ? "global" : "node";
    if (peer.localWorkloadSelector !== undefined) yield* this.#toWorkloads(peer);
    else if (peer.peerSelector !== undefined) {
      for (const other of this.#state.nodes.values())
        if (peer.peerSelector.matches(other.labels)) yield* this.#toNode(peer, other, kind, `BGPPeer ${peer.name}`);
    } else if (peer.peerAddress !== undefined) {
      const session = this.#toAddress(peer, peer.peerAddress, kind);
      if (session !== undefined) yield session;
    } else this.#report(peer, "has neither peerIP nor peerSelector: left out");
  }

  *#toWorkloads(peer: BgpPeer): Generator<Session> {
    if (peer.asNumber === undefined) return this.#report(peer, "asNumber is missing: left out");
    for (const workload of this.#workloads) {
      if (workload.peerName !== peer.name) continue;
      for (const address of workload.addresses)
        yield {
          ...DEFAULTS,
          kind: "localWorkload",
          address,
          asNumber: peer.asNumber,
          localAs: peer.localAsNumber,
          passive: true,
          filters: peer.filters,
          because: `BGPPeer ${peer.name}`,
        };
    }
  }

  /**
   * Yields one session per family that both nodes have.
   * @param reverse set for the reverse direction: the families to use. Sessions that this node already has are skipped.
   */
  *#toNode(
    peer: BgpPeer,
    other: Node,
    kind: "global" | "node",
    because: string,
    reverse?: IpVersion | "both",
  ): Generator<Session> {
    if (other.name === this.#node.name) return;
    const port = this.#listenPort(other);
    for (const version of [4, 6] as const) {
      const network = other.networks[version];
      if (network === undefined || (reverse !== undefined && reverse !== "both" && reverse !== version)) continue;
      if (reverse !== undefined && this.#found.has(sessionKey(network.address, port))) continue;
      yield {
        ...fromPeer(peer),
        kind,
        address: network.address,
        port,
        asNumber: this.#asNumber(other),
        clusterId: other.clusterId,
        because: `${because}, node ${other.name}`,
      };
    }
  }

  #toAddress(
    peer: BgpPeer,
    { address, port }: { readonly address: IpAddress; readonly port: number | undefined },
    kind: "global" | "node",
  ): Session | undefined {
    const other = this.#nodeAt(address);
    const asNumber = peer.asNumber ?? (other === undefined ? undefined : this.#asNumber(other));
    if (asNumber === undefined || asNumber === 0) {
      this.#report(peer, `asNumber is ${asNumber === 0 ? "0" : "missing"}: ${address} left out`);
      return undefined;
    }
    const isThatNode = other !== undefined && asNumber === this.#asNumber(other);
    if (other !== undefined && !isThatNode && this.#isInMesh(other)) {
      this.#report(
        peer,
        `asNumber ${asNumber} is not node ${other.name}'s (${this.#asNumber(other)}): using the session of the mesh instead`,
      );
      return undefined;
    }
    const own = this.#node.networks[ipVersion(address)]?.address;
    return {
      ...fromPeer(peer),
      kind,
      address,
      port: port ?? (isThatNode ? this.#listenPort(other) : undefined),
      asNumber,
      localAs: peer.localAsNumber,
      clusterId: isThatNode ? other.clusterId : undefined,
      numAllowedLocalAs: peer.numAllowedLocalAs,
      passive: kind === "global" && other !== undefined && own !== undefined && address > own,
      because: `BGPPeer ${peer.name}`,
    };
  }

  /** Sessions of a BGPPeer that selects other nodes, if this node is their peer. */
  *#reverse(peer: BgpPeer): Generator<Session> {
    if (!peer.isReversed || peer.localWorkloadSelector !== undefined) return;
    const family = this.#reverseFamily(peer);
    if (family === undefined) return;
    for (const other of this.#state.nodes.values())
      if (isForNode(peer, other))
        yield* this.#toNode(peer, other, "node", `BGPPeer ${peer.name} (reverse direction)`, family);
  }

  #reverseFamily(peer: BgpPeer): IpVersion | "both" | undefined {
    if (peer.peerSelector !== undefined) return peer.peerSelector.matches(this.#node.labels) ? "both" : undefined;
    if (peer.peerAddress === undefined || !this.#isOwn(peer.peerAddress.address)) return undefined;
    const { address, port } = peer.peerAddress;
    const ownPort = this.#listenPort(this.#node);
    // If no listen port is configured, any port is accepted: this node can still connect to the other one.
    const isOwnPort = port === undefined || ownPort === undefined || port === ownPort;
    const isOwnAs = peer.asNumber === undefined || peer.asNumber === this.#asNumber(this.#node);
    return isOwnPort && isOwnAs ? ipVersion(address) : undefined;
  }

  /** The full mesh of all nodes, without route reflectors, which need a BGPPeer. */
  *mesh(): Generator<Session> {
    const configuration = this.#state.configurations.get("default");
    if (configuration?.meshEnabled === false || this.#node.clusterId !== undefined) return;
    const explicit = new Set([...this.#found.values()].map(({ address }) => address));
    const seen = new Set<IpAddress>();
    for (const other of this.#state.nodes.values()) {
      if (other.name === this.#node.name || other.clusterId !== undefined) continue;
      for (const version of [4, 6] as const) {
        const own = this.#node.networks[version]?.address;
        const address = other.networks[version]?.address;
        if (own === undefined || address === undefined || explicit.has(address)) continue;
        if (address === own || seen.has(address)) {
          this.#problems.push({
            object: `Node(${other.name})`,
            problem: `${address} is also the address of another node: left out of the mesh`,
          });
          continue;
        }
        seen.add(address);
        yield {
          ...DEFAULTS,
          kind: "mesh",
          address,
          port: this.#listenPort(other),
          asNumber: this.#asNumber(other),
          useNodeAddress: true,
          passive: address > own,
          password: configuration?.meshPassword,
          restartSeconds: configuration?.meshRestartSeconds,
          because: `node-to-node mesh, node ${other.name}`,
        };
      }
    }
  }

  #isInMesh(other: Node): boolean {
    const isOn = this.#state.configurations.get("default")?.meshEnabled !== false;
    return (
      isOn && this.#node.clusterId === undefined && other.clusterId === undefined && other.name !== this.#node.name
    );
  }

  #nodeAt(address: IpAddress): Node | undefined {
    for (const node of this.#state.nodes.values())
      if (node.networks[ipVersion(address)]?.address === address) return node;
    return undefined;
  }

  #asNumber(node: Node): number {
    return asNumberOf(this.#state, node);
  }

  #listenPort(node: Node): number | undefined {
    return listenPortOf(this.#state, node.name);
  }

  #report(peer: BgpPeer, problem: string): void {
    this.#problems.push({ object: `BGPPeer(${peer.name})`, problem });
  }
}

export const asNumberOf = (state: BgpState, node: Node): number =>
  node.asNumber ?? state.configurations.get("default")?.asNumber ?? DEFAULT_AS;

/** The node's setting, else the default one; undefined if neither is set. */
export const listenPortOf = (state: BgpState, node: string): number | undefined =>
  state.configurations.get(`node.${node}`)?.listenPort ?? state.configurations.get("default")?.listenPort;

const DEFAULTS = {
  port: undefined,
  localAs: undefined,
  clusterId: undefined,
  useNodeAddress: false,
  passive: false,
  password: undefined,
  restartSeconds: undefined,
  keepaliveSeconds: undefined,
  ttlSecurity: undefined,
  reachableBy: undefined,
  filters: [],
  nextHopMode: undefined,
  keepOriginalNextHop: false,
  numAllowedLocalAs: undefined,
} as const;

/** Settings of a BGPPeer that apply to both directions. */
function fromPeer(peer: BgpPeer) {
  return {
    ...DEFAULTS,
    useNodeAddress: peer.sourceAddress === "UseNodeIP",
    password: peer.password,
    restartSeconds: peer.restartSeconds,
    keepaliveSeconds: peer.keepaliveSeconds,
    ttlSecurity: peer.ttlSecurity,
    reachableBy: peer.reachableBy,
    filters: peer.filters,
    nextHopMode: peer.nextHopMode,
    keepOriginalNextHop: peer.keepOriginalNextHop,
  };
}
