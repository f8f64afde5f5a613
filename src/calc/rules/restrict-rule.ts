// Converts a rule of a namespace whose IP sets would have too many members from network sets and services of other
// namespaces. The rule is converted without these members, so that it allows less than it says, never more:
//
// - An Allow rule does not match them. With a negated match, or a service of another namespace, it matches nothing.
// - A Deny rule matches without regard to such a set. A Pass rule becomes a Deny rule, because the rules behind it were not
//   meant for its packets.
//
// Other tenants thereby close nothing that they could not close anyway: to add a prefix to a negated match, or to a match of
// a Deny rule, denies its packets, too.
import type { Rule } from "../../model/index.ts";
import { type IpSetSpec, withoutForeignMembers } from "../ipsets/ip-set.ts";
import type { IpSetId, ProtoRule } from "../messages.ts";
import { type ConversionContext, convertRule } from "./convert.ts";

/** Returns undefined if the rule matches nothing. */
export function convertRestrictedRule(
  rule: Rule,
  namespace: string,
  { use }: ConversionContext,
): ProtoRule | undefined {
  const affected = new Set<IpSetId>();
  const used: IpSetSpec[] = [];
  let isEmpty = false;
  const proto = convertRule(rule, {
    use: (set) => {
      const restricted = withoutForeignMembers(set, namespace);
      if (restricted === undefined) isEmpty = true;
      else used.push(restricted);
      if (restricted !== set) affected.add((restricted ?? set).id);
      return (restricted ?? set).id;
    },
  });
  const isAffected = (id: IpSetId) => affected.has(id);
  const isNegated = proto.notSrcIpSetIds.some(isAffected) || proto.notDstIpSetIds.some(isAffected);
  if (rule.action === "allow" || rule.action === "log") {
    if (isEmpty || isNegated) return undefined;
    for (const set of used) use(set);
    return proto;
  }
  const unaffected = (ids: readonly IpSetId[]) => ids.filter((id) => !isAffected(id));
  for (const set of used) if (!isAffected(set.id)) use(set);
  if (affected.size === 0) return proto;
  return {
    ...proto,
    action: "deny",
    srcIpSetIds: unaffected(proto.srcIpSetIds),
    dstIpSetIds: unaffected(proto.dstIpSetIds),
    dstIpPortSetIds: unaffected(proto.dstIpPortSetIds),
    notSrcIpSetIds: unaffected(proto.notSrcIpSetIds),
    notDstIpSetIds: unaffected(proto.notDstIpSetIds),
  };
}
