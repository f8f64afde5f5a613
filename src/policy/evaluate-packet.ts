// Evaluates policy at every point on a packet's path from source to destination. Hosts are routers: on the sender's host
// these points are the sender's egress policy and the host endpoint through which the packet leaves; on the receiver's
// host they are the host endpoint through which the packet enters and the receiver's ingress policy.
//
// On one host the order is:
//   1. untracked policy, then pre-DNAT policy, of the incoming interface
//   2. policy for forwarded traffic of the incoming interface
//   3. policy of the local workloads
//   4. policy for forwarded traffic of the outgoing interface
// A packet that untracked or pre-DNAT policy allows is not evaluated further at the same interface.
import type { IpAddress } from "../lib/ip/ip.ts";
import { type Direction, type Evaluation, evaluateEndpoint, hasPolicy, type Stage } from "./evaluate-endpoint.ts";
import { failsafeFor, failsafeReplyFor } from "./failsafe.ts";
import type { Packet } from "./packet.ts";
import { type Endpoint, endpointName, type Host, type PolicyState, type Workload } from "./state.ts";

export interface PacketQuery {
  readonly packet: Packet;
  /** The packet belongs to an established connection, so only untracked policy is evaluated. */
  readonly established?: boolean;
  /** For a packet to a service: the packet before DNAT, to which untracked and pre-DNAT policy apply. */
  readonly beforeDnat?: Packet;
  /** By default, `source` and `destination` are looked up by the packet's addresses. */
  readonly source?: Party;
  readonly destination?: Party;
}
/** The sender or receiver of a packet. `external` is neither a workload nor a host of this cluster. */
export type Party =
  | { readonly kind: "workload"; readonly workload: Workload }
  | { readonly kind: "host"; readonly host: string; readonly interface?: string }
  | { readonly kind: "external" };

export interface Checkpoint {
  readonly host: string;
  /** `workload default/web` */
  readonly endpoint: string;
  readonly direction: Direction;
  readonly stage: Stage;
  readonly outcome: "allow" | "deny" | "none";
  readonly because: string;
  readonly tiers: Evaluation["tiers"];
  readonly profiles: Evaluation["profiles"];
}
export interface Verdict {
  readonly action: "allow" | "deny";
  /** The endpoint, and the rule or default, that decided, in one sentence. */
  readonly because: string;
  readonly checkpoints: readonly Checkpoint[];
  /** Assumptions made during the evaluation. */
  readonly notes: readonly string[];
}

/** Returns the workload or host that has the address. */
export function partyAt(state: PolicyState, address: IpAddress): Party {
  const workload = state.workloadAt(address);
  if (workload !== undefined) return { kind: "workload", workload };
  const host = state.hostOf(address);
  return host === undefined ? { kind: "external" } : { kind: "host", host };
}

export function evaluatePacket(state: PolicyState, query: PacketQuery): Verdict {
  const source = query.source ?? partyAt(state, query.packet.source);
  const destination = query.destination ?? partyAt(state, query.packet.destination);
  return new PathEvaluation(state, query).run(source, destination);
}

const hostOf = (party: Party): string | undefined =>
  party.kind === "workload" ? party.workload.key.host : party.kind === "host" ? party.host : undefined;

class PathEvaluation {
  readonly #state: PolicyState;
  readonly #query: PacketQuery;
  readonly #checkpoints: Checkpoint[] = [];
  readonly #notes: string[] = [];

  constructor(state: PolicyState, query: PacketQuery) {
    this.#state = state;
    this.#query = query;
  }

  run(source: Party, destination: Party): Verdict {
    const from = hostOf(source);
    const to = hostOf(destination);
    if (from === undefined && to === undefined)
      return this.#makeVerdict("allow", "neither source nor destination is in this cluster");
    if (from !== undefined && from === to) return this.#withinHost(source, destination, from);
    const left = from === undefined ? undefined : this.#leaveHost(source, from);
    if (left !== undefined) return left;
    return (
      (to === undefined ? undefined : this.#enterHost(destination, to)) ??
      this.#makeVerdict("allow", this.#describeDecision())
    );
  }

  /** For traffic between workloads and processes of the same host. */
  #withinHost(source: Party, destination: Party, host: string): Verdict {
    if (source.kind === "host" && destination.kind === "workload")
      return this.#makeVerdict("allow", "policy does not apply to traffic from a host to its own workloads");
    if (source.kind === "host")
      return this.#makeVerdict("allow", "policy for traffic from a host to itself is not evaluated");
    if (source.kind !== "workload") return this.#makeVerdict("allow", "no policy applies");
    if (destination.kind === "host") return this.#workloadToHost(source.workload, host);
    const incoming = this.#enterInterface(host, this.#wildcardEndpoint(host), "forward");
    if (incoming !== undefined) return incoming;
    const sent = this.#evaluateWorkload(source.workload, "egress");
    if (sent !== undefined) return sent;
    const received =
      destination.kind === "workload" ? this.#evaluateWorkload(destination.workload, "ingress") : undefined;
    if (received !== undefined) return received;
    return (
      this.#leaveInterface(host, this.#wildcardEndpoint(host)) ?? this.#makeVerdict("allow", this.#describeDecision())
    );
  }

  #leaveHost(source: Party, host: string): Verdict | undefined {
    if (source.kind === "host") return this.#sendFromHost(host, this.#uplinkEndpoint(host, source.interface));
    if (source.kind !== "workload") return undefined;
    return (
      this.#enterInterface(host, this.#wildcardEndpoint(host), "forward") ??
      this.#evaluateWorkload(source.workload, "egress") ??
      this.#leaveInterface(host, this.#uplinkEndpoint(host))
    );
  }

  #enterHost(destination: Party, host: string): Verdict | undefined {
    if (destination.kind === "host")
      return this.#enterInterface(
        host,
        this.#uplinkEndpoint(host, destination.interface, this.#query.packet.destination),
        "normal",
      );
    if (destination.kind !== "workload") return undefined;
    return (
      this.#enterInterface(host, this.#uplinkEndpoint(host), "forward") ??
      this.#evaluateWorkload(destination.workload, "ingress") ??
      this.#leaveInterface(host, this.#wildcardEndpoint(host))
    );
  }

  /**
   * The packet enters the host through the interface of `endpoint`.
   * @param last the stage after untracked and pre-DNAT policy: `normal` for the host's processes, `forward`, or none
   */
  #enterInterface(host: string, endpoint: Host | undefined, last?: "normal" | "forward"): Verdict | undefined {
    if (endpoint === undefined) return undefined;
    const arrived = this.#query.beforeDnat ?? this.#query.packet;
    for (const stage of ["untracked", "preDnat", last] as const) {
      if (stage === undefined) return undefined;
      // As in Calico, untracked policy does not apply to a wildcard endpoint, because it would affect every interface.
      if (stage === "untracked" && endpoint.value.name === "*") continue;
      if (stage === "preDnat" && this.#query.established === true) continue;
      if (stage === last && this.#isEstablished(host, endpoint, "ingress", stage)) return undefined;
      const packet = stage === last ? this.#query.packet : arrived;
      const evaluated = stage === "preDnat" ? this.#preDnatEndpoint(host, endpoint) : endpoint;
      const outcome = this.#evaluateAt(host, evaluated, packet, "ingress", stage);
      if (outcome === "deny") return this.#makeVerdict("deny", this.#describeDecision());
      if (outcome === "allow") return undefined; // later stages of this interface are not evaluated
    }
    return undefined;
  }

  /** If no pre-DNAT policy selects the interface's own endpoint, that of the wildcard endpoint applies. */
  #preDnatEndpoint(host: string, endpoint: Host): Host {
    const has = hasPolicy(this.#state, { endpoint, direction: "ingress", stage: "preDnat" });
    return has ? endpoint : (this.#wildcardEndpoint(host) ?? endpoint);
  }

  /** A forwarded packet leaves the host through the interface of `endpoint`. */
  #leaveInterface(host: string, endpoint: Host | undefined): Verdict | undefined {
    if (endpoint === undefined || this.#isEstablished(host, endpoint, "egress", "forward")) return undefined;
    const outcome = this.#evaluateAt(host, endpoint, this.#query.packet, "egress", "forward");
    return outcome === "deny" ? this.#makeVerdict("deny", this.#describeDecision()) : undefined;
  }

  /** A process of the host sends the packet through the interface of `endpoint`. */
  #sendFromHost(host: string, endpoint: Host | undefined): Verdict | undefined {
    if (endpoint === undefined) return undefined;
    for (const stage of ["untracked", "normal"] as const) {
      if (stage === "untracked" && endpoint.value.name === "*") continue;
      if (stage === "normal" && this.#isEstablished(host, endpoint, "egress", stage)) return undefined;
      const outcome = this.#evaluateAt(host, endpoint, this.#query.packet, "egress", stage);
      if (outcome === "deny") return this.#makeVerdict("deny", this.#describeDecision());
      if (outcome === "allow") return undefined;
    }
    return undefined;
  }

  #evaluateWorkload(workload: Workload, direction: Direction): Verdict | undefined {
    const { host } = workload.key;
    if (workload.value.state !== "active") return this.#deny(host, workload, direction, "the endpoint is not active");
    if (this.#isEstablished(host, workload, direction, "normal")) return undefined;
    const tunnelError = direction === "egress" ? this.#tunnelPacketError(host) : undefined;
    if (tunnelError !== undefined) return this.#deny(host, workload, direction, tunnelError);
    const outcome = this.#evaluateAt(host, workload, this.#query.packet, direction, "normal");
    return outcome === "allow" ? undefined : this.#makeVerdict("deny", this.#describeDecision());
  }

  /** A packet to a process of the workload's own host: its egress policy, then `DefaultEndpointToHostAction`. */
  #workloadToHost(workload: Workload, host: string): Verdict {
    const { packet } = this.#query;
    if (packet.protocol === 58 && NEIGHBOUR_TYPES.has(packet.icmp?.type ?? -1))
      return this.#makeVerdict("allow", "neighbour discovery between a workload and its host is always allowed");
    const denied =
      this.#enterInterface(host, this.#wildcardEndpoint(host)) ?? this.#evaluateWorkload(workload, "egress");
    if (denied !== undefined) return denied;
    const action = this.#state.setting("DefaultEndpointToHostAction", host).toLowerCase();
    const because = `DefaultEndpointToHostAction is ${action}`;
    if (this.#query.established === true) return this.#makeVerdict("allow", this.#describeDecision());
    return this.#makeVerdict(action === "drop" ? "deny" : "allow", because);
  }

  /** Describes the tunnel protocol that workloads may not send, if the packet uses one. */
  #tunnelPacketError(host: string): string | undefined {
    const { packet } = this.#query;
    if (packet.protocol === 4 && !this.#state.setting("AllowIPIPPacketsFromWorkloads", host))
      return "workloads may not send IPIP packets";
    const isVxlan = packet.protocol === 17 && packet.destinationPort === this.#state.setting("VXLANPort", host);
    if (isVxlan && !this.#state.setting("AllowVXLANPacketsFromWorkloads", host))
      return "workloads may not send VXLAN packets";
    return undefined;
  }

  #evaluateAt(
    host: string,
    endpoint: Endpoint,
    packet: Packet,
    direction: Direction,
    stage: Stage,
  ): "allow" | "deny" | "none" {
    const open = endpoint.kind === "host" ? this.#describeFailsafe(host, packet, direction, stage) : undefined;
    if (open !== undefined) {
      // In the untracked and pre-DNAT stages a failsafe port ends only that stage. Later stages are evaluated again;
      // there, replies are allowed because their connection is established.
      const outcome = stage === "normal" ? "allow" : "none";
      const checkpoint = { host, endpoint: endpointName(endpoint), direction, stage, outcome } as const;
      this.#checkpoints.push({ ...checkpoint, because: open, tiers: [], profiles: [] });
      return outcome;
    }
    const evaluation = evaluateEndpoint(this.#state, { endpoint, packet, direction, stage });
    // Stages without policy are not reported.
    if (evaluation.outcome !== "none" || evaluation.tiers.length > 0)
      this.#checkpoints.push({ host, endpoint: endpointName(endpoint), direction, stage, ...evaluation });
    return evaluation.outcome;
  }

  #describeFailsafe(host: string, packet: Packet, direction: Direction, stage: Stage): string | undefined {
    if (stage === "forward" || !this.#hasPolicy(stage)) return undefined;
    const entry =
      failsafeFor(this.#state, host, packet, direction) ??
      (stage === "untracked" ? failsafeReplyFor(this.#state, host, packet, direction) : undefined);
    return entry === undefined ? undefined : `failsafe port ${entry.port} is always open`;
  }

  /** The untracked and pre-DNAT chains, with their failsafe rules, exist only if the cluster has such a policy. */
  #hasPolicy(stage: Stage): boolean {
    if (stage === "normal") return true;
    return this.#state.tiers.some((tier) =>
      tier.policies.some(({ policy }) => (stage === "untracked" ? policy.untracked : policy.preDnat) === true),
    );
  }

  #isEstablished(host: string, endpoint: Endpoint, direction: Direction, stage: Stage): boolean {
    if (this.#query.established !== true) return false;
    const because = "the connection is established";
    this.#checkpoints.push({
      host,
      endpoint: endpointName(endpoint),
      direction,
      stage,
      outcome: "allow",
      because,
      tiers: [],
      profiles: [],
    });
    return true;
  }

  #deny(host: string, endpoint: Endpoint, direction: Direction, because: string): Verdict {
    this.#checkpoints.push({
      host,
      endpoint: endpointName(endpoint),
      direction,
      stage: "normal",
      outcome: "deny",
      because,
      tiers: [],
      profiles: [],
    });
    return this.#makeVerdict("deny", this.#describeDecision());
  }

  /** Returns the host endpoint with interface name `*`, which applies to all interfaces without their own endpoint. */
  #wildcardEndpoint(host: string): Host | undefined {
    return firstByName(this.#state.hosts.filter(({ key, value }) => key.host === host && value.name === "*"));
  }

  /**
   * Returns the host endpoint of the interface towards other hosts. It is found by the interface's name, if given; else
   * by the host's address among the expected addresses; else it is the only endpoint with an interface name, if there is
   * exactly one; else the wildcard endpoint.
   */
  #uplinkEndpoint(host: string, interfaceName?: string, address?: IpAddress): Host | undefined {
    const named = this.#state.hosts.filter(({ key, value }) => key.host === host && value.name !== "*");
    if (interfaceName !== undefined) {
      const own = firstByName(named.filter(({ value }) => value.name === interfaceName));
      if (own !== undefined) return own;
    }
    const wanted = new Set(address === undefined ? this.#state.addressesOf(host) : [address]);
    const expects = ({ value }: Host) =>
      [...value.expectedIpv4Addrs, ...value.expectedIpv6Addrs].some((ip) => wanted.has(ip));
    const byAddress = firstByName(
      named.filter((endpoint) => expects(endpoint) && (interfaceName === undefined || endpoint.value.name === "")),
    );
    if (byAddress !== undefined) return byAddress;
    const [only, ...others] = interfaceName === undefined ? named.filter(({ value }) => value.name !== "") : [];
    if (only !== undefined && others.length === 0) {
      this.#addNote(`assuming that host ${host} reaches other hosts through ${only.value.name}`);
      return only;
    }
    return this.#wildcardEndpoint(host);
  }

  #addNote(text: string): void {
    if (!this.#notes.includes(text)) this.#notes.push(text);
  }

  #describeDecision(): string {
    const decided = this.#checkpoints.findLast(({ outcome }) => outcome !== "none");
    if (decided === undefined) return "no policy applies on the path";
    return `${decided.endpoint} ${decided.direction}: ${decided.because}`;
  }

  #makeVerdict(action: "allow" | "deny", because: string): Verdict {
    return { action, because, checkpoints: this.#checkpoints, notes: this.#notes };
  }
}

/** ICMPv6: MLD query, report and done; router solicitation; neighbour solicitation and advertisement. */
const NEIGHBOUR_TYPES: ReadonlySet<number> = new Set([130, 131, 132, 133, 135, 136]);

function firstByName(endpoints: readonly Host[]): Host | undefined {
  return endpoints.toSorted((a, b) => (a.key.endpoint < b.key.endpoint ? -1 : 1))[0];
}
