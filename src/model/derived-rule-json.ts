// Rules and policies as the v1 model writes them in JSON: negations have a `!` in front, what the user wrote stands in
// fields that begin with `orig_`. Decoding inverts encoding.
import { type Cidr, tryParseCidr } from "../lib/ip.ts";
import { JsonReader } from "../lib/json-reader.ts";
import type { Json } from "../lib/lossless-json.ts";
import type { Policy, ProfileRules, Rule, RulePort, RuleSide } from "./derived.ts";
import { parseRulePort, parseRuleProtocol } from "./rule-conversion.ts";

type JsonFields = Record<string, unknown>;

function ruleJson(rule: Rule): JsonFields {
  return filled({
    action: rule.action,
    ip_version: rule.ipVersion,
    protocol: rule.protocol,
    icmp_type: rule.icmp?.type,
    icmp_code: rule.icmp?.code,
    ...sideJson("src", rule.source),
    ...sideJson("dst", rule.destination),
    "!protocol": rule.notProtocol,
    "!icmp_type": rule.notIcmp?.type,
    "!icmp_code": rule.notIcmp?.code,
    http: rule.http,
    metadata: rule.annotations === undefined ? undefined : { annotations: rule.annotations },
  });
}

function sideJson(side: "src" | "dst", of: RuleSide): JsonFields {
  const original = of.original;
  return {
    [`${side}_nets`]: of.nets,
    [`${side}_selector`]: of.selector,
    [`${side}_ports`]: of.ports?.map(portJson),
    [`${side}_service`]: of.service?.name,
    [`${side}_service_ns`]: original?.service === undefined ? of.service?.namespace : original.service.namespace,
    [`!${side}_nets`]: of.notNets,
    [`!${side}_selector`]: of.notSelector,
    [`!${side}_ports`]: of.notPorts?.map(portJson),
    [`orig_${side}_selector`]: original?.selector,
    [`orig_${side}_namespace_selector`]: original?.namespaceSelector,
    [`orig_${side}_service_acct_names`]: original?.serviceAccountNames,
    [`orig_${side}_service_acct_selector`]: original?.serviceAccountSelector,
    [`!orig_${side}_selector`]: original?.notSelector,
  };
}

const portJson = (port: RulePort): Json =>
  "name" in port ? port.name : port.min === port.max ? port.min : `${port.min}:${port.max}`;

/** @param namespace of the policy: where a service is looked for whose namespace is not said */
function ruleFromJson(json: JsonReader, namespace: string): Rule {
  const action = json.text("action");
  if (action !== "allow" && action !== "deny" && action !== "log" && action !== "next-tier")
    return json.fail("action", "allow, deny, log or next-tier");
  const version = json.number("ip_version");
  if (version !== undefined && version !== 4 && version !== 6) json.fail("ip_version", "4 or 6");
  const protocol = (name: string) => {
    const value = json.raw(name);
    return value === undefined ? undefined : (parseRuleProtocol(value) ?? json.fail(name, "a protocol"));
  };
  const icmp = (prefix: "" | "!") => {
    const type = json.whole(`${prefix}icmp_type`);
    const code = json.whole(`${prefix}icmp_code`);
    return type === undefined ? undefined : filled({ type, code });
  };
  return filled({
    action,
    ipVersion: version,
    protocol: protocol("protocol"),
    notProtocol: protocol("!protocol"),
    icmp: icmp(""),
    notIcmp: icmp("!"),
    source: sideFromJson(json, "src", namespace),
    destination: sideFromJson(json, "dst", namespace),
    http: json.raw("http"),
    annotations: json.object("metadata")?.map("annotations"),
  }) as unknown as Rule;
}

function sideFromJson(json: JsonReader, side: "src" | "dst", namespace: string): RuleSide {
  const nets = (name: string): readonly Cidr[] | undefined =>
    json.raw(name) === undefined
      ? undefined
      : json.texts(name).map((text) => tryParseCidr(text) ?? json.fail(name, `CIDRs, not ${text}`));
  const ports = (name: string): readonly RulePort[] | undefined =>
    json.raw(name) === undefined
      ? undefined
      : json.list(name).map((value) => parseRulePort(value) ?? json.fail(name, `ports, not ${JSON.stringify(value)}`));
  const service = json.filled(`${side}_service`);
  const serviceNamespace = json.filled(`${side}_service_ns`);
  const names = json.texts(`orig_${side}_service_acct_names`);
  const original = filled({
    selector: json.filled(`orig_${side}_selector`),
    namespaceSelector: json.filled(`orig_${side}_namespace_selector`),
    notSelector: json.filled(`!orig_${side}_selector`),
    serviceAccountNames: names.length === 0 ? undefined : names,
    serviceAccountSelector: json.filled(`orig_${side}_service_acct_selector`),
    service: service === undefined ? undefined : filled({ name: service, namespace: serviceNamespace }),
  });
  return filled({
    nets: nets(`${side}_nets`),
    notNets: nets(`!${side}_nets`),
    selector: json.filled(`${side}_selector`),
    notSelector: json.filled(`!${side}_selector`),
    ports: ports(`${side}_ports`),
    notPorts: ports(`!${side}_ports`),
    service: service === undefined ? undefined : { name: service, namespace: serviceNamespace ?? namespace },
    original: Object.keys(original).length === 0 ? undefined : original,
  }) as RuleSide;
}

export function policyJson(policy: Policy): JsonFields {
  return filled({
    namespace: policy.namespace,
    tier: policy.tier,
    order: policy.order,
    inbound_rules: policy.inboundRules.map(ruleJson),
    outbound_rules: policy.outboundRules.map(ruleJson),
    selector: policy.selector,
    untracked: policy.untracked,
    pre_dnat: policy.preDnat,
    apply_on_forward: policy.applyOnForward,
    types: policy.types,
    performance_hints: policy.performanceHints,
    staged_action: policy.stagedAction,
    annotations: policy.annotations,
  });
}

export function policyFromJson(json: JsonReader): Policy {
  const namespace = json.filled("namespace");
  const rules = (name: string) => json.objects(name).map((rule) => ruleFromJson(rule, namespace ?? ""));
  const hints = json.texts("performance_hints");
  return filled({
    namespace,
    tier: json.filled("tier") ?? json.fail("tier", "the tier's name"),
    order: json.number("order"),
    inboundRules: rules("inbound_rules"),
    outboundRules: rules("outbound_rules"),
    selector: json.text("selector") ?? "",
    untracked: json.flag("untracked"),
    preDnat: json.flag("pre_dnat"),
    applyOnForward: json.flag("apply_on_forward"),
    types: json.texts("types"),
    performanceHints: hints.length === 0 ? undefined : hints,
    stagedAction: json.filled("staged_action"),
    annotations: json.map("annotations"),
  }) as unknown as Policy;
}

export const profileRulesJson = (rules: ProfileRules): JsonFields => ({
  inbound_rules: rules.inboundRules.map(ruleJson),
  outbound_rules: rules.outboundRules.map(ruleJson),
});

export const profileRulesFromJson = (json: JsonReader): ProfileRules => ({
  inboundRules: json.objects("inbound_rules").map((rule) => ruleFromJson(rule, "")),
  outboundRules: json.objects("outbound_rules").map((rule) => ruleFromJson(rule, "")),
});

/** Without the fields that say nothing. */
export function filled<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}
