// Defines the kind BGPFilter: rules for the routes that BGP sessions import and export.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { isCommunity, isInterfacePattern } from "../validation/formats.ts";
import { asNumber, choice, field, integer, list, maskedNetwork, matching, object, pointer } from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext, type Stored } from "./kind.ts";

const community = () => matching(isCommunity, "want a community: 65000:100 (16 bits each) or 65000:1:2 (32 bits each)");
const priority = () => integer(1, 2147483646);

const filterRule = (version: IpVersion) => {
  const length = () => pointer(integer(0, version === 4 ? 32 : 128));
  return object({
    cidr: field(maskedNetwork(version)),
    prefixLength: pointer(object({ min: length(), max: length() })),
    source: field(choice("RemotePeers")),
    interface: field(
      matching(isInterfacePattern, "want an interface name of at most 15 characters, which may contain *"),
    ),
    matchOperator: field(choice("Equal", "NotEqual", "In", "NotIn")),
    peerType: field(choice("eBGP", "iBGP")),
    communities: pointer(object({ values: list(community()) })),
    asPathPrefix: field(list(asNumber())),
    priority: pointer(priority()),
    action: choice("Accept", "Reject"),
    operations: field(
      list(
        object({
          addCommunity: pointer(object({ value: community() })),
          prependASPath: pointer(object({ prefix: list(asNumber()) })),
          setPriority: pointer(object({ value: priority() })),
        }),
      ),
    ),
  });
};

const spec = object({
  exportV4: field(list(filterRule(4))),
  importV4: field(list(filterRule(4))),
  exportV6: field(list(filterRule(6))),
  importV6: field(list(filterRule(6))),
});
export type BGPFilterResource = ResourceFor<"BGPFilter", typeof spec>;
export type BGPFilterRule = NonNullable<Stored<typeof spec>["exportV4"]>[number];

export default defineKind({
  kind: "BGPFilter",
  description: "Rules for the routes that BGP sessions import and export.",
  spec,
  rules: (filter, context) => {
    for (const name of ["exportV4", "importV4", "exportV6", "importV6"] as const)
      for (const [i, rule] of (filter[name] ?? []).entries()) checkFilterRule(rule, [name, i], context);
  },
});

function checkFilterRule(rule: BGPFilterRule, at: readonly (string | number)[], { report }: RuleContext): void {
  if (rule.matchOperator !== undefined && rule.cidr === undefined)
    report([...at, "cidr"], undefined, "is required with matchOperator");
  if (rule.cidr !== undefined && rule.matchOperator === undefined)
    report([...at, "matchOperator"], undefined, "is required with cidr");
  if (rule.prefixLength !== undefined && rule.cidr === undefined)
    report([...at, "cidr"], undefined, "is required with prefixLength");
  if (rule.communities !== undefined && rule.communities.values.length !== 1)
    report([...at, "communities", "values"], rule.communities.values, "want exactly one");
  if (rule.operations === undefined) return;
  if (rule.action !== "Accept") report([...at, "operations"], undefined, "are possible only with action Accept");
  if (rule.operations.length > 10) report([...at, "operations"], undefined, "want at most 10");
  for (const [i, operation] of rule.operations.entries()) {
    if (Object.keys(operation).length !== 1)
      report([...at, "operations", i], undefined, "want exactly one of addCommunity, prependASPath and setPriority");
    const prefix = operation.prependASPath?.prefix;
    if (prefix !== undefined && (prefix.length < 1 || prefix.length > 10))
      report([...at, "operations", i, "prependASPath", "prefix"], prefix, "want 1 to 10 AS numbers");
  }
}
