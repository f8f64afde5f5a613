// Ports that stay open on host endpoints whatever policy says, so that nobody locks himself out of a host.
import { type Cidr, cidrContains, type IpAddress, tryParseCidr } from "../lib/ip.ts";
import { ipProtocolNumber } from "../lib/ip-protocol.ts";
import { type Packet } from "./packet.ts";
import type { PolicyState } from "./state.ts";

export interface FailsafePort {
  readonly protocol: number;
  readonly port: number;
  /** The far end must be in there. */
  readonly net?: Cidr;
}

const DEFAULTS = {
  FailsafeInboundHostPorts: "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667",
  FailsafeOutboundHostPorts: "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667",
} as const;
type Setting = keyof typeof DEFAULTS;

/** `tcp:22`, `22`, `udp:10.0.0.0/8:53`, `tcp:[fd00::/8]:22`; `none` is no port at all. What does not parse is left out. */
export function parseFailsafePorts(text: string): readonly FailsafePort[] {
  if (text.trim().toLowerCase() === "none") return [];
  return text.split(",").flatMap((item) => {
    const parts = /^(?:([a-z]+):)?(?:\[?([0-9a-f.:/]+?)\]?:)?(\d{1,5})$/i.exec(item.trim());
    const protocol = ipProtocolNumber(parts?.[1] ?? "tcp");
    const net = parts?.[2] === undefined ? undefined : tryParseCidr(parts[2]);
    if (parts === null || protocol === undefined || (parts[2] !== undefined && net === undefined)) return [];
    return [{ protocol, port: Number(parts[3]), ...(net === undefined ? {} : { net }) }];
  });
}

/** The entry that lets this packet through, into a host or out of it. */
export function failsafeFor(
  state: PolicyState,
  host: string,
  packet: Packet,
  direction: "ingress" | "egress",
): FailsafePort | undefined {
  const setting = direction === "ingress" ? "FailsafeInboundHostPorts" : "FailsafeOutboundHostPorts";
  return opening(portsOf(state, host, setting), packet, direction, packet.destinationPort);
}

/** Without connection tracking replies are packets of their own: the other list counts too, by source port. */
export function failsafeReplyFor(
  state: PolicyState,
  host: string,
  packet: Packet,
  direction: "ingress" | "egress",
): FailsafePort | undefined {
  const setting = direction === "ingress" ? "FailsafeOutboundHostPorts" : "FailsafeInboundHostPorts";
  return opening(portsOf(state, host, setting), packet, direction, packet.sourcePort);
}

function opening(
  ports: readonly FailsafePort[],
  packet: Packet,
  direction: "ingress" | "egress",
  port: Packet["sourcePort"],
): FailsafePort | undefined {
  const far = direction === "ingress" ? packet.source : packet.destination;
  return ports.find((entry) => opens(entry, packet, port, far));
}

const portsOf = (state: PolicyState, host: string, setting: Setting): readonly FailsafePort[] =>
  parseFailsafePorts(state.setting(setting, host) ?? DEFAULTS[setting]);

function opens(entry: FailsafePort, packet: Packet, port: number | undefined, far: IpAddress): boolean {
  if (entry.protocol !== packet.protocol || entry.port !== port) return false;
  return entry.net === undefined || cidrContains(entry.net, far);
}
