// BGPFilters as the functions a session calls, one per filter, family and direction.
import { addressBits, cidrLength, type IpVersion, tryParseCidr, ipVersion } from "../lib/ip.ts";
import type { JsonReader } from "../lib/json-reader.ts";
import { isCommunity, isValueError } from "../model/index.ts";
import type { FilterCall, FilterFunction, FilterOperation, FilterRule } from "./plan-types.ts";
import type { BgpFilter, BgpState, Problem } from "./state.ts";

const MAX_PREFERENCE = 2147483647;
const MAX_NAME = 45;
const DIRECTIONS = ["import", "export"] as const;

export interface ReadFilters {
  readonly functions: readonly FilterFunction[];
  /** Names of filters that make no sense: who needs one of them must not go without. */
  readonly unreadable: ReadonlySet<string>;
}

/** By family, then by filter; a filter that makes no sense is reported and left out whole. */
export function readFilters(state: BgpState, problems: Problem[]): ReadFilters {
  const unreadable = new Set<string>();
  const readable = [...state.filters.values()].flatMap((filter) => {
    const own: Problem[] = [];
    try {
      const functions = ([4, 6] as const).map((family) =>
        DIRECTIONS.flatMap((direction) => functionOf(filter, family, direction, own)),
      );
      problems.push(...own);
      return [functions];
    } catch (error) {
      if (!isValueError(error)) throw error;
      unreadable.add(filter.name);
      problems.push({ object: `BGPFilter(${filter.name})`, problem: `${error.message}: left out` });
      return [];
    }
  });
  const functions = [0, 1].flatMap((i) => readable.flatMap((byFamily) => byFamily[i] ?? []));
  return { functions, unreadable };
}

/** The calls a session makes: named filters in the order they are named, where they exist and have something to say. */
export function filterCalls(
  functions: readonly FilterFunction[],
  names: readonly string[],
  session: { readonly direction: "import" | "export"; readonly family: IpVersion; readonly sameAs: boolean },
): readonly FilterCall[] {
  return names.flatMap((name) => {
    const wanted = functionName(name, session.direction, session.family);
    const found = functions.find((each) => each.function === wanted);
    if (found === undefined) return [];
    return [found.takesPeerType ? { function: found.function, sameAs: session.sameAs } : { function: found.function }];
  });
}

function functionOf(
  filter: BgpFilter,
  family: IpVersion,
  direction: "import" | "export",
  problems: Problem[],
): readonly FilterFunction[] {
  const field = `${direction}V${family}`;
  const rules = filter.spec.objects(field).flatMap((each, i) => {
    const rule = ruleOf(each, family);
    const { min, max } = rule.prefixLength ?? { min: 0, max: 0 };
    if (min <= max) return [rule];
    const why = `spec.${field}[${i}].prefixLength: no length lies between ${min} and ${max}`;
    const possible = withoutLengths(rule);
    const sequel = possible === undefined ? "the rule never matches: left out" : "the condition always holds: left out";
    problems.push({ object: `BGPFilter(${filter.name})`, problem: `${why}: ${sequel}` });
    return possible === undefined ? [] : [possible];
  });
  if (rules.length === 0) return [];
  return [
    {
      function: functionName(filter.name, direction, family),
      name: shortName(filter.name),
      direction,
      family,
      takesPeerType: rules.some((rule) => rule.peerType !== undefined),
      rules,
    },
  ];
}

/** No prefix has a length of an empty range: a rule that asks for one never matches, one that asks for any other always. */
function withoutLengths(rule: FilterRule): FilterRule | undefined {
  const { operator, cidr: _cidr, prefixLength: _lengths, ...rest } = rule;
  return operator === "NotEqual" || operator === "NotIn" ? rest : undefined;
}

const functionName = (filter: string, direction: "import" | "export", family: IpVersion): string =>
  `bgp_${shortName(filter)}_${direction}FilterV${family}`;

/** BIRD's names have at most 64 characters, and must not end the quotes they stand in. */
function shortName(name: string): string {
  const isName = /^[\w.-]*$/.test(name);
  if (name.length <= MAX_NAME && isName) return name;
  const hash = new Bun.CryptoHasher("sha256").update(name).digest("hex").toUpperCase();
  return `${name.replaceAll(/[^\w.-]/g, "_").slice(0, 28)}_${hash.slice(0, 16)}`;
}

function ruleOf(rule: JsonReader, family: IpVersion): FilterRule {
  const cidr = rule.filled("cidr");
  const operator = operatorOf(rule);
  if ((cidr === undefined) !== (operator === undefined))
    rule.fail("cidr", "a matchOperator beside it, and the other way round");
  const prefix = cidr === undefined ? undefined : tryParseCidr(cidr);
  if (cidr !== undefined && (prefix === undefined || ipVersion(prefix) !== family))
    rule.fail("cidr", `an IPv${family} CIDR`);
  const lengths = rule.object("prefixLength");
  const peerType = rule.filled("peerType");
  if (peerType !== undefined && peerType !== "eBGP" && peerType !== "iBGP") rule.fail("peerType", "eBGP or iBGP");
  const source = rule.filled("source");
  if (source !== undefined && source !== "RemotePeers") rule.fail("source", "RemotePeers");
  const [community] = rule.object("communities")?.texts("values") ?? [];
  const path = rule.list("asPathPrefix").map(Number);
  const priority = rule.whole("priority");
  const action = rule.text("action");
  if (action !== "Accept" && action !== "Reject") return rule.fail("action", "Accept or Reject");
  const operations = rule.objects("operations").flatMap(operationsOf);
  return {
    ...(peerType === undefined ? {} : { peerType: peerType as "eBGP" | "iBGP" }),
    ...(operator === undefined || cidr === undefined ? {} : { operator, cidr }),
    ...(lengths === undefined || prefix === undefined
      ? {}
      : {
          prefixLength: {
            min: Math.max(cidrLength(prefix), lengths.whole("min") ?? 0),
            max: Math.min(addressBits(family), lengths.whole("max") ?? addressBits(family)),
          },
        }),
    ...(source === undefined ? {} : { source: "RemotePeers" as const }),
    ...(rule.filled("interface") === undefined ? {} : { interface: interfaceOf(rule) }),
    ...(community === undefined ? {} : { community: communityOf(rule, "communities", community) }),
    ...(path.length === 0 ? {} : { asPathPrefix: path.map((as) => asOf(rule, "asPathPrefix", as)) }),
    ...(priority === undefined ? {} : { localPref: MAX_PREFERENCE - priority }),
    action: action === "Accept" ? "accept" : "reject",
    ...(operations.length === 0 ? {} : { operations }),
  };
}

function operatorOf(rule: JsonReader): FilterRule["operator"] {
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

/** Text that BIRD's language will see between quotes must not end them. */
function interfaceOf(rule: JsonReader): string {
  const text = rule.filled("interface") ?? "";
  return /^[a-zA-Z0-9_.*-]{1,15}$/.test(text) ? text : rule.fail("interface", "an interface's name, * for any letters");
}

function communityOf(rule: JsonReader, field: string, text: string): string {
  return isCommunity(text) ? text : rule.fail(field, "a community such as 64512:100 or 64512:1:2");
}

function asOf(rule: JsonReader, field: string, value: number): number {
  return Number.isInteger(value) && value > 0 && value <= 0xffffffff ? value : rule.fail(field, "AS numbers");
}

/** Prepended numbers go on one by one, so the last goes first. */
function operationsOf(operation: JsonReader): readonly FilterOperation[] {
  const added = operation.object("addCommunity")?.filled("value");
  if (added !== undefined) return [{ addCommunity: communityOf(operation, "addCommunity", added) }];
  const priority = operation.object("setPriority")?.whole("value");
  if (priority !== undefined) return [{ setLocalPref: MAX_PREFERENCE - priority }];
  const prefix = operation.object("prependASPath")?.list("prefix") ?? [];
  if (prefix.length === 0) return operation.fail("addCommunity", "one of addCommunity, prependASPath, setPriority");
  return prefix.map((as) => ({ prependAs: asOf(operation, "prependASPath", Number(as)) })).reverse();
}
