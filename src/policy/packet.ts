// Describes the packet to evaluate. Both addresses have the same family; only TCP, UDP and SCTP packets have ports, and
// only ICMP packets have a type.
import { type IpAddress, type IpVersion, ipVersion } from "../lib/ip/ip.ts";
import { ipProtocolName } from "../lib/ip/ip-protocol.ts";

export interface Packet {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  /** IP protocol number. */
  readonly protocol: number;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  readonly icmp?: { readonly type: number; readonly code: number };
}

export const protocolName = (number: number): string => ipProtocolName(number) ?? `protocol ${number}`;

/** Whether packets of the protocol have ports that a rule can match. */
export const carriesPorts = (protocol: number): boolean => protocol === 6 || protocol === 17 || protocol === 132;

export const familyOf = (packet: Packet): IpVersion => ipVersion(packet.destination);

/** `tcp 10.0.0.1 → 10.0.0.2:80` */
export function describePacket(packet: Packet): string {
  const end = (address: IpAddress, port: number | undefined) =>
    port === undefined ? address : address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
  const icmp = packet.icmp === undefined ? "" : ` type ${packet.icmp.type} code ${packet.icmp.code}`;
  const from = end(packet.source, packet.sourcePort);
  return `${protocolName(packet.protocol)}${icmp} ${from} → ${end(packet.destination, packet.destinationPort)}`;
}
