// Finds the failsafe port that a packet matches. Failsafe ports of hosts are open regardless of policy, so that
// administrators cannot lock themselves out.
import { cidrContains, type IpAddress } from "../lib/ip/ip.ts";
import { ipProtocolNumber } from "../lib/ip/ip-protocol.ts";
import type { FailsafePort } from "../model/index.ts";
import { type Packet } from "./packet.ts";
import type { PolicyState } from "./state.ts";

type Settings = Pick<PolicyState, "setting">;
type Direction = "ingress" | "egress";

/** Returns the failsafe port that allows the packet to enter or leave the host. */
export function failsafeFor(
  state: Settings,
  host: string,
  packet: Packet,
  direction: Direction,
): FailsafePort | undefined {
  const setting = direction === "ingress" ? "FailsafeInboundHostPorts" : "FailsafeOutboundHostPorts";
  return findOpenPort(state.setting(setting, host), packet, direction, packet.destinationPort);
}

/**
 * The same for a reply, which is evaluated separately if there is no connection tracking: its source port is looked up
 * in the failsafe ports of the opposite direction.
 */
export function failsafeReplyFor(
  state: Settings,
  host: string,
  packet: Packet,
  direction: Direction,
): FailsafePort | undefined {
  const setting = direction === "ingress" ? "FailsafeOutboundHostPorts" : "FailsafeInboundHostPorts";
  return findOpenPort(state.setting(setting, host), packet, direction, packet.sourcePort);
}

function findOpenPort(
  ports: readonly FailsafePort[],
  packet: Packet,
  direction: Direction,
  port: Packet["sourcePort"],
): FailsafePort | undefined {
  const otherEnd = direction === "ingress" ? packet.source : packet.destination;
  return ports.find((entry) => matchesPort(entry, packet, port, otherEnd));
}

function matchesPort(entry: FailsafePort, packet: Packet, port: number | undefined, otherEnd: IpAddress): boolean {
  if (ipProtocolNumber(entry.protocol) !== packet.protocol || entry.port !== port) return false;
  return entry.net === undefined || cidrContains(entry.net, otherEnd);
}
