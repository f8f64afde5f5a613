// Parses values that may be written as a number or as text: AS numbers (`64512`, `"1.10"`), ports (`80`, `"1:10"`,
// `http`), protocols (`6`, `"6"`, `TCP`) and DSCPs. Each has one stored form.

/** Parses an AS number: a number, digits, or two 16-bit numbers joined by a dot. Returns undefined if it is invalid. */
export function parseAsNumber(value: unknown): number | undefined {
  if (typeof value === "number")
    return Number.isInteger(value) && value >= 0 && value <= 0xffffffff ? value : undefined;
  if (typeof value !== "string") return undefined;
  const dotted = /^(\d{1,5})\.(\d{1,5})$/.exec(value);
  if (dotted === null) return /^\d{1,10}$/.test(value) ? parseAsNumber(Number(value)) : undefined;
  const high = Number(dotted[1]);
  const low = Number(dotted[2]);
  return high > 0xffff || low > 0xffff ? undefined : high * 0x10000 + low;
}

/** A port in stored form: one number, `"min:max"`, or a name. */
export type PortValue = number | string;
export type Port = { readonly min: number; readonly max: number } | { readonly name: string };

/** Returns the stored form of a port: digits become a number. Returns undefined if the value is not a port. */
export function normalizePort(value: unknown): PortValue | undefined {
  if (typeof value === "number") return Number.isInteger(value) && value >= 0 && value <= 65535 ? value : undefined;
  if (typeof value !== "string") return undefined;
  if (/^\d+$/.test(value)) return normalizePort(Number(value));
  const range = /^(\d+):(\d+)$/.exec(value);
  if (range === null) return /^[a-zA-Z0-9_.-]{1,128}$/.test(value) ? value : undefined;
  const min = Number(range[1]);
  const max = Number(range[2]);
  if (max > 65535 || min > max) return undefined;
  return min === max ? min : `${min}:${max}`;
}

/** Parses the stored form of a port. */
export function parsePort(value: PortValue): Port {
  if (typeof value === "number") return { min: value, max: value };
  const range = /^(\d+):(\d+)$/.exec(value);
  if (range === null) return /^\d+$/.test(value) ? { min: Number(value), max: Number(value) } : { name: value };
  return { min: Number(range[1]), max: Number(range[2]) };
}

export const PROTOCOL_NAMES = ["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"] as const;
/** A protocol in stored form: a name as in `PROTOCOL_NAMES`, or a number 1–255. */
export type ProtocolValue = number | string;

/** Returns the stored form of a protocol: digits become a number; names are not changed. */
export function normalizeProtocol(value: unknown): ProtocolValue | undefined {
  if (typeof value === "number") return Number.isInteger(value) && value >= 0 && value <= 255 ? value : undefined;
  if (typeof value !== "string") return undefined;
  return /^\d+$/.test(value) ? normalizeProtocol(Number(value)) : value;
}

const PORT_PROTOCOLS: ReadonlySet<ProtocolValue> = new Set<ProtocolValue>(["TCP", "UDP", "SCTP", 6, 17, 132]);
/** Whether packets of this protocol have ports that a rule can match. */
export const hasPorts = (protocol: ProtocolValue): boolean => PORT_PROTOCOLS.has(protocol);

/** A DSCP: 0–63 or the name of a per-hop behaviour in any letter case; undefined if the value is neither. */
export function parseDscp(value: unknown): number | undefined {
  if (typeof value === "number") return Number.isInteger(value) && value >= 0 && value <= 63 ? value : undefined;
  if (typeof value !== "string") return undefined;
  if (/^\d+$/.test(value)) return parseDscp(Number(value));
  const name = value.toUpperCase();
  if (name === "DF") return 0;
  if (name === "EF") return 46;
  const [, assured, drop] = /^AF([1-4])([1-3])$/.exec(name) ?? [];
  if (assured !== undefined) return Number(assured) * 8 + Number(drop) * 2;
  const [, selector] = /^CS([0-6])$/.exec(name) ?? [];
  return selector === undefined ? undefined : Number(selector) * 8;
}
