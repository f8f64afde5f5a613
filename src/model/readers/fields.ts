// Reads types of values that several kinds use. An invalid value is rejected with the path of the field.
import {
  type Cidr,
  type IpAddress,
  type IpNetwork,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
  tryParseNetwork,
} from "../../lib/ip/ip.ts";
import type { JsonReader } from "../../lib/encoding/json-reader.ts";
import { quote, shorten } from "../../lib/shorten.ts";
import type { Labels } from "../resource.ts";
import { lookupIn, ParsedSelector, SelectorError } from "../selector/selector.ts";
import { parseDuration } from "../validation/duration.ts";
import { parseAsNumber } from "../validation/numbers.ts";

export type ByFamily<T> = Readonly<Record<IpVersion, T | undefined>>;

/** Selects nodes by their labels. */
export interface NodeSelector {
  /** As stored. */
  readonly text: string;
  readonly matches: (labels: Labels) => boolean;
}

/** The name of a Kubernetes Secret, and a key in it. */
export interface SecretRef {
  readonly name: string;
  readonly key: string;
}

export function addressIn(from: JsonReader, name: string): IpAddress | undefined {
  const text = from.filled(name);
  return text === undefined ? undefined : (tryParseAddress(text) ?? from.fail(name, "an IP address"));
}

/** Reads an address of one IP version, with or without prefix length. */
export function networkIn(from: JsonReader | undefined, name: string, version: IpVersion): IpNetwork | undefined {
  const text = from?.filled(name);
  if (text === undefined) return undefined;
  const network = tryParseNetwork(text);
  return network !== undefined && ipVersion(network.address) === version
    ? network
    : from?.fail(name, `an IPv${version} address`);
}

export function cidrIn(from: JsonReader, name: string): Cidr | undefined {
  const text = from.filled(name);
  if (text === undefined) return undefined;
  return tryParseCidr(text) ?? from.fail(name, `a CIDR, not ${quote(text)}`);
}

export const cidrsIn = (from: JsonReader, name: string): readonly Cidr[] =>
  from.texts(name).map((text) => tryParseCidr(text) ?? from.fail(name, `CIDRs, not ${shorten(text)}`));

/** 0 is not an AS number. */
export function asNumberIn(from: JsonReader | undefined, name: string): number | undefined {
  const value = from?.textOrNumber(name);
  if (value === undefined) return undefined;
  return parseAsNumber(value) || from?.fail(name, "an AS number such as 64512 or 1.10");
}

export function selectorIn(from: JsonReader, name: string): ParsedSelector | undefined {
  const text = from.filled(name);
  if (text === undefined) return undefined;
  try {
    return ParsedSelector.parse(text);
  } catch (error) {
    if (!(error instanceof SelectorError)) throw error;
    return from.fail(name, `a selector (${error.message})`);
  }
}

export function nodeSelectorIn(from: JsonReader, name: string): NodeSelector | undefined {
  const selector = selectorIn(from, name);
  if (selector === undefined) return undefined;
  return { text: from.text(name) ?? "", matches: (labels) => selector.matcher(lookupIn(labels)) };
}

/** Whole seconds, rounded, and limited to what the protocol can express. */
export function secondsIn(from: JsonReader, name: string, min: number, max: number): number | undefined {
  const text = from.filled(name);
  if (text === undefined) return undefined;
  const ns = parseDuration(text) ?? from.fail(name, "a duration such as 90s");
  return Math.min(max, Math.max(min, Math.round(ns / 1e9)));
}

export function integerIn(from: JsonReader, name: string, min: number, max: number): number | undefined {
  const value = from.whole(name);
  return value === undefined || (value >= min && value <= max) ? value : from.fail(name, `${min} to ${max}`);
}

export function secretIn(from: JsonReader, name: string): SecretRef | undefined {
  const ref = from.object(name)?.object("secretKeyRef");
  const [secret, key] = [ref?.filled("name"), ref?.filled("key")];
  return secret === undefined || key === undefined ? undefined : { name: secret, key };
}
