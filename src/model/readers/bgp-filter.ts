// Reads BGPFilters. Their values are written to BIRD's configuration, so each value is checked.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Resource } from "../resource.ts";
import { isCommunity, isInterfacePattern } from "../validation/formats.ts";
import { cidrIn } from "./fields.ts";

export type FilterDirection = "import" | "export";

export interface BgpFilter {
  readonly name: string;
  readonly rules: Readonly<Record<FilterDirection, Readonly<Record<IpVersion, readonly BgpFilterRule[]>>>>;
}

/** Absent conditions match every route. */
export interface BgpFilterRule {
  readonly peerType: "eBGP" | "iBGP" | undefined;
  readonly prefix: PrefixMatch | undefined;
  readonly source: "RemotePeers" | undefined;
  /** A pattern such as `*.calico`. */
  readonly interface: string | undefined;
  readonly community: string | undefined;
  readonly asPathPrefix: readonly number[];
  readonly priority: number | undefined;
  readonly action: "Accept" | "Reject";
  readonly operations: readonly BgpFilterOperation[];
}
export interface PrefixMatch {
  readonly operator: "Equal" | "NotEqual" | "In" | "NotIn";
  readonly cidr: Cidr;
  readonly lengths: { readonly min: number | undefined; readonly max: number | undefined } | undefined;
}
export type BgpFilterOperation =
  | { readonly addCommunity: string }
  | { readonly setPriority: number }
  | { readonly prependAsPath: readonly number[] };

/** @throws WrongShape if any part cannot be read: a filter must not be applied in part */
export function readBgpFilter(resource: Resource): BgpFilter {
  const spec = new JsonReader(resource.spec ?? {}, "spec");
  const rules = (direction: FilterDirection, family: IpVersion) =>
    spec.objects(`${direction}V${family}`).map((rule) => ruleOf(rule, family));
  return {
    name: resource.metadata.name,
    rules: {
      import: { 4: rules("import", 4), 6: rules("import", 6) },
      export: { 4: rules("export", 4), 6: rules("export", 6) },
    },
  };
}

function ruleOf(rule: JsonReader, family: IpVersion): BgpFilterRule {
  const peerType = rule.filled("peerType");
  if (peerType !== undefined && peerType !== "eBGP" && peerType !== "iBGP")
    return rule.fail("peerType", "eBGP or iBGP");
  const source = rule.filled("source");
  if (source !== undefined && source !== "RemotePeers") return rule.fail("source", "RemotePeers");
  const action = rule.text("action");
  if (action !== "Accept" && action !== "Reject") return rule.fail("action", "Accept or Reject");
  const [community] = rule.object("communities")?.texts("values") ?? [];
  return {
    peerType,
    prefix: prefixMatchIn(rule, family),
    source,
    interface: interfaceIn(rule),
    community: community === undefined ? undefined : checkCommunity(rule, "communities", community),
    asPathPrefix: rule.list("asPathPrefix").map((as) => checkAsNumber(rule, "asPathPrefix", Number(as))),
    priority: rule.whole("priority"),
    action,
    operations: rule.objects("operations").map(operationOf),
  };
}

function prefixMatchIn(rule: JsonReader, family: IpVersion): PrefixMatch | undefined {
  const cidr = cidrIn(rule, "cidr");
  const operator = operatorIn(rule);
  const lengths = rule.object("prefixLength");
  if (cidr === undefined && operator === undefined) return undefined;
  if (cidr === undefined || operator === undefined) return rule.fail("cidr", "both cidr and matchOperator, or neither");
  if (ipVersion(cidr) !== family) return rule.fail("cidr", `an IPv${family} CIDR`);
  return {
    operator,
    cidr,
    lengths: lengths === undefined ? undefined : { min: lengths.whole("min"), max: lengths.whole("max") },
  };
}

function operatorIn(rule: JsonReader): PrefixMatch["operator"] | undefined {
  const operator = rule.filled("matchOperator");
  switch (operator) {
    case undefined:
    case "Equal":
    case "NotEqual":
    case "In":
    case "NotIn":
      return operator;
    default:
      return rule.fail("matchOperator", "Equal, NotEqual, In or NotIn");
  }
}

function interfaceIn(rule: JsonReader): string | undefined {
  const text = rule.filled("interface");
  if (text === undefined || isInterfacePattern(text)) return text;
  return rule.fail("interface", "an interface name, in which * matches any characters");
}

function operationOf(operation: JsonReader): BgpFilterOperation {
  const added = operation.object("addCommunity")?.filled("value");
  if (added !== undefined) return { addCommunity: checkCommunity(operation, "addCommunity", added) };
  const priority = operation.object("setPriority")?.whole("value");
  if (priority !== undefined) return { setPriority: priority };
  const prefix = operation.object("prependASPath")?.list("prefix") ?? [];
  if (prefix.length === 0) return operation.fail("addCommunity", "one of addCommunity, prependASPath, setPriority");
  return { prependAsPath: prefix.map((as) => checkAsNumber(operation, "prependASPath", Number(as))) };
}

const checkCommunity = (from: JsonReader, name: string, text: string): string =>
  isCommunity(text) ? text : from.fail(name, "a community such as 64512:100 or 64512:1:2");

const checkAsNumber = (from: JsonReader, name: string, value: number): number =>
  Number.isInteger(value) && value > 0 && value <= 0xffffffff ? value : from.fail(name, "AS numbers");
