// Converts BGPFilters to the functions that sessions call: one per filter, family and direction.
import { addressBits, cidrLength, type IpVersion } from "../lib/ip/ip.ts";
import type { BgpFilter, BgpFilterOperation, BgpFilterRule } from "../model/index.ts";
import { MAX_LOCAL_PREFERENCE } from "./local-preference.ts";
import type { FilterCall, FilterFunction, FilterOperation, FilterRule } from "./plan-types.ts";
import type { BgpState, Problem } from "./state.ts";

const MAX_NAME = 45;
const DIRECTIONS = ["import", "export"] as const;

/** Sorted by family, then by filter. */
export const filterFunctions = (state: BgpState, problems: Problem[]): readonly FilterFunction[] =>
  ([4, 6] as const).flatMap((family) =>
    [...state.filters.values()].flatMap((filter) =>
      DIRECTIONS.flatMap((direction) => functionOf(filter, family, direction, problems)),
    ),
  );

/** Returns the calls of a session, in the order of `names`. Filters without rules for the family and direction are skipped. */
export function filterCalls(
  functions: readonly FilterFunction[],
  names: readonly string[],
  session: { readonly direction: "import" | "export"; readonly family: IpVersion; readonly sameAs: boolean },
): readonly FilterCall[] {
  return names.flatMap((name) => {
    const wantedName = functionName(name, session.direction, session.family);
    const found = functions.find((each) => each.function === wantedName);
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
  const rules = filter.rules[direction][family].flatMap((each, i) => {
    const rule = ruleOf(each, family);
    const { min, max } = rule.prefixLength ?? { min: 0, max: 0 };
    if (min <= max) return [rule];
    const why = `spec.${direction}V${family}[${i}].prefixLength: the range from ${min} to ${max} is empty`;
    const possible = withoutLengths(rule);
    const effect = possible === undefined ? "rule skipped, it never matches" : "condition skipped, it is always true";
    problems.push({ object: `BGPFilter(${filter.name})`, problem: `${why}: ${effect}` });
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

/** For an empty range of lengths: `In` and `Equal` never match, `NotIn` and `NotEqual` always match. */
function withoutLengths(rule: FilterRule): FilterRule | undefined {
  const { operator, cidr: _cidr, prefixLength: _lengths, ...rest } = rule;
  return operator === "NotEqual" || operator === "NotIn" ? rest : undefined;
}

const functionName = (filter: string, direction: "import" | "export", family: IpVersion): string =>
  `bgp_${shortName(filter)}_${direction}FilterV${family}`;

/** BIRD's names have at most 64 characters, and must not contain quotes. */
function shortName(name: string): string {
  const isName = /^[\w.-]*$/.test(name);
  if (name.length <= MAX_NAME && isName) return name;
  const hash = new Bun.CryptoHasher("sha256").update(name).digest("hex").toUpperCase();
  return `${name.replaceAll(/[^\w.-]/g, "_").slice(0, 28)}_${hash.slice(0, 16)}`;
}

function ruleOf(rule: BgpFilterRule, family: IpVersion): FilterRule {
  const { peerType, prefix, source, community, asPathPrefix, priority } = rule;
  const operations = rule.operations.flatMap(operationsOf);
  return {
    ...(peerType === undefined ? {} : { peerType }),
    ...(prefix === undefined ? {} : { operator: prefix.operator, cidr: prefix.cidr }),
    ...(prefix?.lengths === undefined
      ? {}
      : {
          prefixLength: {
            min: Math.max(cidrLength(prefix.cidr), prefix.lengths.min ?? 0),
            max: Math.min(addressBits(family), prefix.lengths.max ?? addressBits(family)),
          },
        }),
    ...(source === undefined ? {} : { source }),
    ...(rule.interface === undefined ? {} : { interface: rule.interface }),
    ...(community === undefined ? {} : { community }),
    ...(asPathPrefix.length === 0 ? {} : { asPathPrefix }),
    ...(priority === undefined ? {} : { localPref: MAX_LOCAL_PREFERENCE - priority }),
    action: rule.action === "Accept" ? "accept" : "reject",
    ...(operations.length === 0 ? {} : { operations }),
  };
}

/** BIRD prepends one AS number at a time, so they are prepended in reverse order. */
function operationsOf(operation: BgpFilterOperation): readonly FilterOperation[] {
  if ("addCommunity" in operation) return [operation];
  if ("setPriority" in operation) return [{ setLocalPref: MAX_LOCAL_PREFERENCE - operation.setPriority }];
  return operation.prependAsPath.map((prependAs) => ({ prependAs })).reverse();
}
