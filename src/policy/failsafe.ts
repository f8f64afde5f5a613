// Ports of hosts that stay open whatever policy says, so that an administrator cannot lock themselves out.
import { cidrContains, type IpAddress } from "../lib/ip/ip.ts";
import { ipProtocolNumber } from "../lib/ip/ip-protocol.ts";
import type { FailsafePort } from "../model/index.ts";
import { type Packet } from "./packet.ts";
import type { PolicyState } from "./state.ts";

type Settings = Pick<PolicyState, "setting">;
type Direction = "ingress" | "egress";

/** The failsafe port that lets a packet into a host or out of it. */
export function failsafeFor(
  state: Settings,
  host: string,
  packet: Packet,
  direction: Direction,
): FailsafePort | undefined {
  const setting = direction === "ingress" ? "FailsafeInboundHostPorts" : "FailsafeOutboundHostPorts";
  return opening(state.setting(setting, host), packet, direction, packet.destinationPort);
}

/** Replies are separate packets without connection tracking, so the other list applies too, to the source port. */
export function failsafeReplyFor(
  state: Settings,
  host: string,
  packet: Packet,
  direction: Direction,
): FailsafePort | undefined {
  const setting = direction === "ingress" ? "FailsafeOutboundHostPorts" : "FailsafeInboundHostPorts";
  return opening(state.setting(setting, host), packet, direction, packet.sourcePort);
}

function opening(
  ports: readonly FailsafePort[],
  packet: Packet,
  direction: Direction,
  port: Packet["sourcePort"],
): FailsafePort | undefined {
  const far = direction === "ingress" ? packet.source : packet.destination;
  return ports.find((entry) => opens(entry, packet, port, far));
}

function opens(entry: FailsafePort, packet: Packet, port: number | undefined, far: IpAddress): boolean {
  if (ipProtocolNumber(entry.protocol) !== packet.protocol || entry.port !== port) return false;
  return entry.net === undefined || cidrContains(entry.net, far);
}
