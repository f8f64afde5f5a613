// A packet's way from source to destination, and every point on it where policy is asked. Hosts are routers: on the
// sender's host a packet may meet the sender's egress policy and the host endpoint it leaves by, on the receiver's the
// host endpoint it comes in by and the receiver's ingress policy.
//
// On one host the order is: untracked and pre-DNAT policy of the interface it comes in by, then policy for forwarded
// traffic there, the local workloads' own policy, and policy for forwarded traffic of the interface it leaves by. What
// untracked or pre-DNAT policy allowed is not asked again at the same interface.
import type { IpAddress } from "../lib/ip/ip.ts";
import { type Direction, type Evaluation, evaluateEndpoint, hasPolicy, type Stage } from "./evaluate.ts";
import { failsafeFor, failsafeReplyFor } from "./failsafe.ts";
import type { Packet } from "./packet.ts";
import { type Endpoint, endpointName, type Host, type PolicyState, type Workload } from "./state.ts";

export interface Question {
  readonly packet: Packet;
  /** Part of a connection that was allowed before: tracked policy is not asked again. */
  readonly established?: boolean;
  /** As the packet arrived, when it was to a service and has been rewritten: pre-DNAT and untracked policy see this. */
  readonly beforeDnat?: Packet;
  /** Which workload or host is meant, where the addresses alone do not say. */
  readonly source?: Party;
  readonly destination?: Party;
}
/** Who stands at one end. Elsewhere = neither a workload nor a host of this cluster. */
export type Party =
  | { readonly kind: "workload"; readonly workload: Workload }
  | { readonly kind: "host"; readonly host: string; readonly interface?: string }
  | { readonly kind: "elsewhere" };

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
  /** In one sentence, what decided. */
  readonly because: string;
  readonly checkpoints: readonly Checkpoint[];
  /** What was assumed, or is so by design, without any policy. */
  readonly notes: readonly string[];
}

/** Who an address belongs to. */
export function partyAt(state: PolicyState, address: IpAddress): Party {
  const workload = state.workloadAt(address);
  if (workload !== undefined) return { kind: "workload", workload };
  const host = state.hostOf(address);
  return host === undefined ? { kind: "elsewhere" } : { kind: "host", host };
}

export function judge(state: PolicyState, question: Question): Verdict {
  const source = question.source ?? partyAt(state, question.packet.source);
  const destination = question.destination ?? partyAt(state, question.packet.destination);
  return new Journey(state, question).travel(source, destination);
}

const hostOf = (party: Party): string | undefined =>
  party.kind === "workload" ? party.workload.key.host : party.kind === "host" ? party.host : undefined;

class Journey {
  readonly #state: PolicyState;
  readonly #question: Question;
  readonly #checkpoints: Checkpoint[] = [];
  readonly #notes: string[] = [];

  constructor(state: PolicyState, question: Question) {
    this.#state = state;
    this.#question = question;
  }

  travel(source: Party, destination: Party): Verdict {
    const from = hostOf(source);
    const to = hostOf(destination);
    if (from === undefined && to === undefined) return this.#verdict("allow", "neither end is in this cluster");
    if (from !== undefined && from === to) return this.#onOneHost(source, destination, from);
    const left = from === undefined ? undefined : this.#leave(source, from);
    if (left !== undefined) return left;
    return (to === undefined ? undefined : this.#arrive(destination, to)) ?? this.#verdict("allow", this.#lastWord());
  }

  /** Between workloads and processes of the same host. */
  #onOneHost(source: Party, destination: Party, host: string): Verdict {
    if (source.kind === "host" && destination.kind === "workload")
      return this.#verdict("allow", "a host's own traffic to its workloads is never policed");
    if (source.kind === "host") return this.#verdict("allow", "traffic of a host with itself is not looked at here");
    if (source.kind !== "workload") return this.#verdict("allow", "nothing applies");
    if (destination.kind === "host") return this.#workloadToHost(source.workload, host);
    const incoming = this.#incoming(host, this.#anyInterface(host), "forward");
    if (incoming !== undefined) return incoming;
    const sent = this.#workload(source.workload, "egress");
    if (sent !== undefined) return sent;
    const received = destination.kind === "workload" ? this.#workload(destination.workload, "ingress") : undefined;
    if (received !== undefined) return received;
    return this.#outgoing(host, this.#anyInterface(host)) ?? this.#verdict("allow", this.#lastWord());
  }

  #leave(source: Party, host: string): Verdict | undefined {
    if (source.kind === "host") return this.#fromHost(host, this.#uplink(host, source.interface));
    if (source.kind !== "workload") return undefined;
    return (
      this.#incoming(host, this.#anyInterface(host), "forward") ??
      this.#workload(source.workload, "egress") ??
      this.#outgoing(host, this.#uplink(host))
    );
  }

  #arrive(destination: Party, host: string): Verdict | undefined {
    if (destination.kind === "host")
      return this.#incoming(
        host,
        this.#uplink(host, destination.interface, this.#question.packet.destination),
        "normal",
      );
    if (destination.kind !== "workload") return undefined;
    return (
      this.#incoming(host, this.#uplink(host), "forward") ??
      this.#workload(destination.workload, "ingress") ??
      this.#outgoing(host, this.#anyInterface(host))
    );
  }

  /** In by a host's interface: untracked, pre-DNAT, then what is for processes or for forwarding, if anything. */
  #incoming(host: string, endpoint: Host | undefined, last?: "normal" | "forward"): Verdict | undefined {
    if (endpoint === undefined) return undefined;
    const arrived = this.#question.beforeDnat ?? this.#question.packet;
    for (const stage of ["untracked", "preDnat", last] as const) {
      if (stage === undefined) return undefined;
      if (stage === "untracked" && endpoint.value.name === "*") continue; // would cut every interface at once
      if (stage === "preDnat" && this.#question.established === true) continue;
      if (stage === last && this.#established(host, endpoint, "ingress", stage)) return undefined;
      const packet = stage === last ? this.#question.packet : arrived;
      const asked = stage === "preDnat" ? this.#beforeDnat(host, endpoint) : endpoint;
      const outcome = this.#ask(host, asked, packet, "ingress", stage);
      if (outcome === "deny") return this.#verdict("deny", this.#lastWord());
      if (outcome === "allow") return undefined; // and not asked again at this interface
    }
    return undefined;
  }

  /** An interface whose own endpoint has no pre-DNAT policy is under that of the endpoint for every interface. */
  #beforeDnat(host: string, endpoint: Host): Host {
    const has = hasPolicy(this.#state, { endpoint, direction: "ingress", stage: "preDnat" });
    return has ? endpoint : (this.#anyInterface(host) ?? endpoint);
  }

  /** Out by a host's interface, forwarded. */
  #outgoing(host: string, endpoint: Host | undefined): Verdict | undefined {
    if (endpoint === undefined || this.#established(host, endpoint, "egress", "forward")) return undefined;
    const outcome = this.#ask(host, endpoint, this.#question.packet, "egress", "forward");
    return outcome === "deny" ? this.#verdict("deny", this.#lastWord()) : undefined;
  }

  /** Out of a process of the host. */
  #fromHost(host: string, endpoint: Host | undefined): Verdict | undefined {
    if (endpoint === undefined) return undefined;
    for (const stage of ["untracked", "normal"] as const) {
      if (stage === "untracked" && endpoint.value.name === "*") continue;
      if (stage === "normal" && this.#established(host, endpoint, "egress", stage)) return undefined;
      const outcome = this.#ask(host, endpoint, this.#question.packet, "egress", stage);
      if (outcome === "deny") return this.#verdict("deny", this.#lastWord());
      if (outcome === "allow") return undefined;
    }
    return undefined;
  }

  #workload(workload: Workload, direction: Direction): Verdict | undefined {
    const { host } = workload.key;
    if (workload.value.state !== "active")
      return this.#refuse(host, workload, direction, "the endpoint is switched off");
    if (this.#established(host, workload, direction, "normal")) return undefined;
    const guarded = direction === "egress" ? this.#encapsulated(host) : undefined;
    if (guarded !== undefined) return this.#refuse(host, workload, direction, guarded);
    const outcome = this.#ask(host, workload, this.#question.packet, direction, "normal");
    return outcome === "allow" ? undefined : this.#verdict("deny", this.#lastWord());
  }

  /** To a process of the workload's own host: its egress policy, then what is set for all workloads. */
  #workloadToHost(workload: Workload, host: string): Verdict {
    const { packet } = this.#question;
    if (packet.protocol === 58 && NEIGHBOUR_TYPES.has(packet.icmp?.type ?? -1))
      return this.#verdict("allow", "neighbour discovery with the host is always open");
    const denied = this.#incoming(host, this.#anyInterface(host)) ?? this.#workload(workload, "egress");
    if (denied !== undefined) return denied;
    const action = this.#state.setting("DefaultEndpointToHostAction", host).toLowerCase();
    const because = `DefaultEndpointToHostAction is ${action}`;
    if (this.#question.established === true) return this.#verdict("allow", this.#lastWord());
    return this.#verdict(action === "drop" ? "deny" : "allow", because);
  }

  /** A workload must not make tunnel packets of its own. */
  #encapsulated(host: string): string | undefined {
    const { packet } = this.#question;
    if (packet.protocol === 4 && !this.#state.setting("AllowIPIPPacketsFromWorkloads", host))
      return "workloads may not send IPIP packets";
    const isVxlan = packet.protocol === 17 && packet.destinationPort === this.#state.setting("VXLANPort", host);
    if (isVxlan && !this.#state.setting("AllowVXLANPacketsFromWorkloads", host))
      return "workloads may not send VXLAN packets";
    return undefined;
  }

  #ask(
    host: string,
    endpoint: Endpoint,
    packet: Packet,
    direction: Direction,
    stage: Stage,
  ): "allow" | "deny" | "none" {
    const open = endpoint.kind === "host" ? this.#failsafe(host, packet, direction, stage) : undefined;
    if (open !== undefined) {
      // Before tracking or NAT an open port ends that stage only: what comes after asks again, and the answer to a
      // connection passes there because it is established.
      const outcome = stage === "normal" ? "allow" : "none";
      const checkpoint = { host, endpoint: endpointName(endpoint), direction, stage, outcome } as const;
      this.#checkpoints.push({ ...checkpoint, because: open, tiers: [], profiles: [] });
      return outcome;
    }
    const evaluation = evaluateEndpoint(this.#state, { endpoint, packet, direction, stage });
    // Stages without any policy leave no trace.
    if (evaluation.outcome !== "none" || evaluation.tiers.length > 0)
      this.#checkpoints.push({ host, endpoint: endpointName(endpoint), direction, stage, ...evaluation });
    return evaluation.outcome;
  }

  #failsafe(host: string, packet: Packet, direction: Direction, stage: Stage): string | undefined {
    if (stage === "forward" || !this.#hasPolicy(stage)) return undefined;
    const entry =
      failsafeFor(this.#state, host, packet, direction) ??
      (stage === "untracked" ? failsafeReplyFor(this.#state, host, packet, direction) : undefined);
    return entry === undefined ? undefined : `failsafe port ${entry.port} is always open`;
  }

  /** Chains of rare stages exist only where some policy needs them, and failsafes with them. */
  #hasPolicy(stage: Stage): boolean {
    if (stage === "normal") return true;
    return this.#state.tiers.some((tier) =>
      tier.policies.some(({ policy }) => (stage === "untracked" ? policy.untracked : policy.preDnat) === true),
    );
  }

  #established(host: string, endpoint: Endpoint, direction: Direction, stage: Stage): boolean {
    if (this.#question.established !== true) return false;
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

  #refuse(host: string, endpoint: Endpoint, direction: Direction, because: string): Verdict {
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
    return this.#verdict("deny", this.#lastWord());
  }

  /** The host endpoint for every interface that has none of its own. */
  #anyInterface(host: string): Host | undefined {
    return lowest(this.#state.hosts.filter(({ key, value }) => key.host === host && value.name === "*"));
  }

  /**
   * The host endpoint of the interface towards other hosts. By the interface's name when that is known; else by the
   * host's address among the expected ones; else, when one endpoint alone names an interface, that one.
   */
  #uplink(host: string, interfaceName?: string, address?: IpAddress): Host | undefined {
    const named = this.#state.hosts.filter(({ key, value }) => key.host === host && value.name !== "*");
    if (interfaceName !== undefined) {
      const own = lowest(named.filter(({ value }) => value.name === interfaceName));
      if (own !== undefined) return own;
    }
    const wanted = new Set(address === undefined ? this.#state.addressesOf(host) : [address]);
    const expects = ({ value }: Host) =>
      [...value.expectedIpv4Addrs, ...value.expectedIpv6Addrs].some((ip) => wanted.has(ip));
    const byAddress = lowest(
      named.filter((endpoint) => expects(endpoint) && (interfaceName === undefined || endpoint.value.name === "")),
    );
    if (byAddress !== undefined) return byAddress;
    const [only, ...others] = interfaceName === undefined ? named.filter(({ value }) => value.name !== "") : [];
    if (only !== undefined && others.length === 0) {
      this.#note(`assuming that host ${host} reaches others by ${only.value.name}`);
      return only;
    }
    return this.#anyInterface(host);
  }

  #note(text: string): void {
    if (!this.#notes.includes(text)) this.#notes.push(text);
  }

  #lastWord(): string {
    const decided = this.#checkpoints.findLast(({ outcome }) => outcome !== "none");
    if (decided === undefined) return "no policy applies on the way";
    return `${decided.endpoint} ${decided.direction}: ${decided.because}`;
  }

  #verdict(action: "allow" | "deny", because: string): Verdict {
    return { action, because, checkpoints: this.#checkpoints, notes: this.#notes };
  }
}

/** ICMPv6 that makes neighbours findable: listener queries and reports, router and neighbour solicitation, adverts. */
const NEIGHBOUR_TYPES: ReadonlySet<number> = new Set([130, 131, 132, 133, 135, 136]);

function lowest(endpoints: readonly Host[]): Host | undefined {
  return endpoints.toSorted((a, b) => (a.key.endpoint < b.key.endpoint ? -1 : 1))[0];
}
