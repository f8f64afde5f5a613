// Converts rules of the datastore to rules that refer to IP sets: selectors, named ports and services become IP sets, all
// other fields are copied.
import {
  ALL_SELECTOR,
  conjunction,
  negate,
  ParsedSelector,
  type Rule,
  type RulePort,
  type RuleProtocol,
  type RuleSide,
} from "../../model/index.ts";
import { type IpSetSpec, type NamedPortProtocol, namedPortSet, selectorSet, serviceSet } from "../ipsets/ip-set.ts";
import type { PortRange, ProtocolMatch, ProtoRule, RuleOriginals } from "../messages.ts";

const NONE: readonly never[] = [];

export interface ConversionContext {
  /** Records that the rule needs the set, and returns the set's ID. */
  use(set: IpSetSpec): string;
}

type Draft<T> = { -readonly [K in keyof T]: T[K] };

export function convertRule(rule: Rule, context: ConversionContext): ProtoRule {
  const { source, destination, http } = rule;
  const protocol = namedPortProtocol(rule.protocol);
  const from = convertSide(source, protocol, context);
  const to = convertSide(destination, protocol, context);
  const proto: Draft<ProtoRule> = {
    action: rule.action,
    srcNet: source.nets ?? NONE,
    srcPorts: from.ports,
    dstNet: destination.nets ?? NONE,
    dstPorts: to.ports,
    srcIpSetIds: from.setIds,
    dstIpSetIds: to.setIds,
    srcNamedPortIpSetIds: from.namedPortSetIds,
    dstNamedPortIpSetIds: to.namedPortSetIds,
    dstIpPortSetIds: NONE,
    notSrcNet: source.notNets ?? NONE,
    notSrcPorts: from.notPorts,
    notDstNet: destination.notNets ?? NONE,
    notDstPorts: to.notPorts,
    notSrcIpSetIds: from.notSetIds,
    notDstIpSetIds: to.notSetIds,
    notSrcNamedPortIpSetIds: from.notNamedPortSetIds,
    notDstNamedPortIpSetIds: to.notNamedPortSetIds,
    original: originals(source, destination),
    ruleId: "",
  };
  const ipVersion = rule.ipVersion ?? impliedVersion(rule.protocol);
  if (ipVersion !== undefined) proto.ipVersion = ipVersion;
  if (rule.protocol !== undefined) proto.protocol = protoProtocol(rule.protocol);
  if (rule.notProtocol !== undefined) proto.notProtocol = protoProtocol(rule.notProtocol);
  if (rule.icmp !== undefined) proto.icmp = rule.icmp;
  if (rule.notIcmp !== undefined) proto.notIcmp = rule.notIcmp;
  if (source.service !== undefined)
    proto.srcIpSetIds = [...from.setIds, context.use(serviceSet(serviceName(source.service), false))];
  if (destination.service !== undefined)
    proto.dstIpPortSetIds = [context.use(serviceSet(serviceName(destination.service), true))];
  if (http !== undefined) proto.httpMatch = { methods: http.methods ?? NONE, paths: http.paths ?? NONE };
  if (rule.annotations !== undefined) proto.annotations = rule.annotations;
  return proto;
}

interface ConvertedSide {
  readonly ports: readonly PortRange[];
  readonly notPorts: readonly PortRange[];
  readonly setIds: readonly string[];
  readonly notSetIds: readonly string[];
  readonly namedPortSetIds: readonly string[];
  readonly notNamedPortSetIds: readonly string[];
}

function convertSide(side: RuleSide, protocol: NamedPortProtocol, context: ConversionContext): ConvertedSide {
  const { selector: positive, notSelector: negative } = side;
  const ports = splitPorts(side.ports);
  const notPorts = splitPorts(side.notPorts);
  // A negated selector is merged into the positive one. Alone it becomes a negated set match, because it must also match
  // addresses outside the cluster.
  const selector = positive === undefined || negative === undefined ? positive : excluding(positive, negative);
  const named = (names: readonly string[]) => {
    if (names.length === 0) return NONE;
    const selected = selector ?? ParsedSelector.of(ALL_SELECTOR);
    return names.map((name) => context.use(namedPortSet(selected, protocol, name)));
  };
  const namedPortSetIds = named(ports.names);
  // A named-port set contains only selected endpoints, so the selector needs no set of its own. With numeric ports it does,
  // because a packet may match a number instead of a name.
  const isImplied = namedPortSetIds.length > 0 && ports.ranges.length === 0;
  return {
    ports: ports.ranges,
    notPorts: notPorts.ranges,
    setIds: selector === undefined || isImplied ? NONE : [context.use(selectorSet(selector))],
    notSetIds: positive !== undefined || negative === undefined ? NONE : [context.use(selectorSet(negative))],
    namedPortSetIds,
    notNamedPortSetIds: named(notPorts.names),
  };
}

const excluding = (positive: ParsedSelector, negative: ParsedSelector): ParsedSelector =>
  ParsedSelector.of(conjunction([positive.tree, negate(negative.tree)]));

function splitPorts(ports: readonly RulePort[] = NONE): {
  readonly ranges: readonly PortRange[];
  readonly names: readonly string[];
} {
  if (ports.length === 0) return { ranges: NONE, names: NONE };
  const ranges: PortRange[] = [];
  const names: string[] = [];
  for (const port of ports)
    if ("name" in port) names.push(port.name);
    else ranges.push({ first: port.min, last: port.max });
  return { ranges, names };
}

const NO_ORIGINALS: RuleOriginals = {};

function originals(source: RuleSide, destination: RuleSide): RuleOriginals {
  const { original: from, service: fromService } = source;
  const { original: to, service: toService } = destination;
  if (from === undefined && to === undefined && fromService === undefined && toService === undefined)
    return NO_ORIGINALS;
  const all: Draft<RuleOriginals> = {};
  if (isNonEmpty(from?.selector)) all.srcSelector = from.selector;
  if (isNonEmpty(to?.selector)) all.dstSelector = to.selector;
  if (isNonEmpty(from?.namespaceSelector)) all.srcNamespaceSelector = from.namespaceSelector;
  if (isNonEmpty(to?.namespaceSelector)) all.dstNamespaceSelector = to.namespaceSelector;
  if (isNonEmpty(from?.notSelector)) all.notSrcSelector = from.notSelector;
  if (isNonEmpty(to?.notSelector)) all.notDstSelector = to.notSelector;
  const fromAccounts = serviceAccounts(from);
  const toAccounts = serviceAccounts(to);
  if (fromAccounts !== undefined) all.srcServiceAccount = fromAccounts;
  if (toAccounts !== undefined) all.dstServiceAccount = toAccounts;
  if (fromService !== undefined) all.srcService = fromService;
  if (toService !== undefined) all.dstService = toService;
  return all;
}

const isNonEmpty = (text: string | undefined): text is string => text !== undefined && text !== "";

function serviceAccounts(of: RuleSide["original"]): RuleOriginals["srcServiceAccount"] {
  const { serviceAccountNames: names = NONE, serviceAccountSelector: selector = "" } = of ?? {};
  return names.length === 0 && selector === "" ? undefined : { selector, names };
}

const serviceName = (service: { readonly name: string; readonly namespace: string }) =>
  `${service.namespace}/${service.name}`;

const protoProtocol = (protocol: RuleProtocol): ProtocolMatch =>
  typeof protocol === "number" ? { number: protocol } : { name: protocol };

function impliedVersion(protocol: RuleProtocol | undefined): 4 | 6 | undefined {
  return protocol === "icmp" ? 4 : protocol === "icmpv6" ? 6 : undefined;
}

function namedPortProtocol(protocol: RuleProtocol | undefined): NamedPortProtocol {
  if (protocol === undefined) return "any";
  if (protocol === "udp" || protocol === 17) return "udp";
  if (protocol === "sctp" || protocol === 132) return "sctp";
  return "tcp";
}
