// Converts a rule of a v3 policy or profile to the form that the calculation graph uses. An invalid condition is
// reported, and must never make the policy allow more than its author intended:
//
//   action          effect of an invalid condition
//   Deny            the condition is ignored, so the rule denies more packets
//   Pass            the rule becomes such a Deny rule: later rules of the tier were not meant for its packets
//   Allow, Log      the rule is ignored
//   unknown action  the rule is treated as Deny
import { type Cidr, tryParseCidr } from "../lib/ip/ip.ts";
import type { JsonReader } from "../lib/encoding/json-reader.ts";
import { describeJson, type Json } from "../lib/encoding/lossless-json.ts";
import { quote, shorten } from "../lib/shorten.ts";
import { type EntitySelectors, entitySelector } from "./selector/compose-selector.ts";
import type { Rule, RulePort, RuleProtocol, RuleSide } from "./stored/derived.ts";
import { ParsedSelector } from "./selector/selector.ts";
import { isValueError, type ReportProblem } from "./validation/value-error.ts";

const ACTIONS: ReadonlyMap<unknown, Rule["action"]> = new Map([
  ["Allow", "allow"],
  ["Deny", "deny"],
  ["Log", "log"],
  ["Pass", "next-tier"],
] as const);

/** @param namespace of the policy; absent for global policies and profiles */
export function convertRules(
  rules: readonly JsonReader[],
  namespace: string | undefined,
  report: ReportProblem,
): readonly Rule[] {
  const converted: Rule[] = [];
  for (const rule of rules) {
    const result = convertRule(rule, namespace, report);
    if (result !== undefined) converted.push(result);
  }
  return converted;
}

export function convertRule(rule: JsonReader, namespace: string | undefined, report: ReportProblem): Rule | undefined {
  const knownAction = ACTIONS.get(rule.raw("action"));
  if (knownAction === undefined) report(`${rule.at("action")}: want Allow, Deny, Log or Pass: treated as Deny`);
  const action = knownAction ?? "deny";
  const mayBecomeDeny = action === "deny" || action === "next-tier";
  let isComplete = true;
  const attempt = <T>(convert: () => T): T | undefined => {
    try {
      return convert();
    } catch (error) {
      if (!isValueError(error)) throw error;
      report(`${error.message}: ${mayBecomeDeny ? "condition ignored, the rule denies more packets" : "rule ignored"}`);
      isComplete = false;
      return undefined;
    }
  };
  const protocol = attempt(() => protocolOf(rule, "protocol"));
  const side = (name: "source" | "destination"): RuleSide => {
    const entity = attempt(() => rule.object(name));
    if (entity === undefined) return {};
    const converted = convertSide(entity, namespace, attempt);
    // In packets of a protocol without ports, the same bytes have another meaning and could match by accident.
    const hasInvalidPorts = attempt(() => checkPortNumbers(entity, converted, protocol)) === undefined;
    const { ports: _ignored, ...rest } = converted;
    return hasInvalidPorts ? rest : converted;
  };
  const converted: Rule = {
    action,
    ...optional(
      "ipVersion",
      attempt(() => ipVersionOf(rule)),
    ),
    ...optional("protocol", protocol),
    ...optional(
      "notProtocol",
      attempt(() => protocolOf(rule, "notProtocol")),
    ),
    ...optional(
      "icmp",
      attempt(() => icmpOf(rule, "icmp")),
    ),
    ...optional(
      "notIcmp",
      attempt(() => icmpOf(rule, "notICMP")),
    ),
    source: side("source"),
    destination: side("destination"),
    ...optional(
      "http",
      attempt(() => httpOf(rule)),
    ),
    ...optional(
      "annotations",
      attempt(() => rule.object("metadata")?.map("annotations")),
    ),
  };
  // The kernel does not parse HTTP, so the rule allows the whole connection.
  if (isComplete && converted.http !== undefined && action === "allow")
    report(`${rule.at("http")} is not enforced: the rule allows the whole connection`);
  if (isComplete) return converted;
  return mayBecomeDeny ? { ...converted, action: "deny" } : undefined;
}

/** @throws WrongShape if a rule matches port numbers of a protocol without ports */
function checkPortNumbers(entity: JsonReader, side: RuleSide, protocol: RuleProtocol | undefined): true {
  const hasNumber = (side.ports ?? []).some((port) => !("name" in port));
  if (hasNumber && !WITH_PORTS.has(protocol)) entity.fail("ports", "protocol TCP, UDP or SCTP in the rule");
  return true;
}
const WITH_PORTS: ReadonlySet<RuleProtocol | undefined> = new Set(["tcp", "udp", "sctp", 6, 17, 132]);

type Attempt = <T>(part: () => T) => T | undefined;

function convertSide(entity: JsonReader, namespace: string | undefined, attempt: Attempt): RuleSide {
  const original = attempt(() => originalOf(entity)) ?? {};
  const accounts = original.serviceAccounts;
  const service = attempt(() => serviceOf(entity));
  const selector = attempt(() => {
    const composed = entitySelector(original, namespace);
    return composed === undefined ? undefined : ParsedSelector.of(composed);
  });
  const notSelector = attempt(() =>
    original.notSelector === undefined ? undefined : ParsedSelector.parse(original.notSelector),
  );
  const originalFields = {
    ...optional("selector", original.selector),
    ...optional("namespaceSelector", original.namespaceSelector),
    ...optional("notSelector", original.notSelector),
    ...optional(
      "serviceAccountNames",
      accounts === undefined || accounts.names.length === 0 ? undefined : accounts.names,
    ),
    ...optional("serviceAccountSelector", accounts?.selector),
    ...optional("service", service),
  };
  return {
    ...optional(
      "nets",
      attempt(() => netsOf(entity, "nets")),
    ),
    ...optional(
      "notNets",
      attempt(() => netsOf(entity, "notNets")),
    ),
    ...optional("selector", selector),
    ...optional("notSelector", notSelector),
    ...optional(
      "ports",
      attempt(() => portsOf(entity, "ports")),
    ),
    ...optional(
      "notPorts",
      attempt(() => portsOf(entity, "notPorts")),
    ),
    ...(service === undefined
      ? {}
      : { service: { name: service.name, namespace: service.namespace ?? namespace ?? "" } }),
    ...(Object.keys(originalFields).length === 0 ? {} : { original: originalFields }),
  };
}

function originalOf(entity: JsonReader): EntitySelectors {
  const accounts = entity.object("serviceAccounts");
  return {
    selector: entity.filled("selector"),
    notSelector: entity.filled("notSelector"),
    namespaceSelector: entity.filled("namespaceSelector"),
    serviceAccounts:
      accounts === undefined ? undefined : { names: accounts.texts("names"), selector: accounts.filled("selector") },
  };
}

/** The service's name is required: without it, the rule would match every peer. */
function serviceOf(entity: JsonReader): { readonly name: string; readonly namespace?: string } | undefined {
  const services = entity.object("services");
  if (services === undefined) return undefined;
  const name = services.filled("name") ?? services.fail("name", "the service's name");
  return { name, ...optional("namespace", services.filled("namespace")) };
}

function netsOf(entity: JsonReader, name: "nets" | "notNets"): readonly Cidr[] | undefined {
  const texts = entity.texts(name);
  if (texts.length === 0) return undefined;
  return texts.map((text) => tryParseCidr(text) ?? entity.fail(name, `CIDRs, not ${quote(text)}`));
}

function portsOf(entity: JsonReader, name: "ports" | "notPorts"): readonly RulePort[] | undefined {
  const values = entity.list(name);
  if (values.length === 0) return undefined;
  return values.map(
    (value) =>
      parseRulePort(value) ??
      entity.fail(name, `ports such as 80, "8000:8080" or http, not ${shorten(describeJson(value))}`),
  );
}

/** Parses a number, digits, `min:max` or a port name. Returns undefined for any other value. */
function parseRulePort(value: Json): RulePort | undefined {
  if (typeof value === "number") return rangeOf(value, value);
  if (typeof value !== "string") return undefined;
  const [, min, max] = /^(\d{1,5})(?::(\d{1,5}))?$/.exec(value) ?? [];
  if (min !== undefined) return rangeOf(Number(min), Number(max ?? min));
  return /^[a-zA-Z0-9_.-]{1,128}$/.test(value) ? { name: value } : undefined;
}

function rangeOf(min: number, max: number): RulePort | undefined {
  return Number.isInteger(min) && min >= 0 && max <= 65535 && min <= max ? { min, max } : undefined;
}

function ipVersionOf(rule: JsonReader): 4 | 6 | undefined {
  const version = rule.number("ipVersion");
  if (version !== undefined && version !== 4 && version !== 6) rule.fail("ipVersion", "4 or 6");
  return version;
}

function protocolOf(rule: JsonReader, name: "protocol" | "notProtocol"): RuleProtocol | undefined {
  const value = rule.raw(name);
  if (value === undefined) return undefined;
  return parseRuleProtocol(value) ?? rule.fail(name, "a protocol's name or a number from 1 to 255");
}

const PROTOCOLS: ReadonlySet<string> = new Set(["tcp", "udp", "icmp", "icmpv6", "sctp", "udplite"]);

/** Returns names in lower case and digits as a number; undefined if the value is not a protocol. */
export function parseRuleProtocol(value: Json): RuleProtocol | undefined {
  if (typeof value === "number") return Number.isInteger(value) && value >= 1 && value <= 255 ? value : undefined;
  if (typeof value !== "string") return undefined;
  if (/^\d{1,3}$/.test(value)) return parseRuleProtocol(Number(value));
  const name = value.toLowerCase();
  return PROTOCOLS.has(name) ? name : undefined;
}

function icmpOf(rule: JsonReader, name: "icmp" | "notICMP"): Rule["icmp"] {
  const match = rule.object(name);
  if (match === undefined) return undefined;
  const type = match.whole("type");
  const code = match.whole("code");
  if (type === undefined) return code === undefined ? undefined : match.fail("code", "a type beside it");
  if (type < 0 || type > 254) match.fail("type", "0 to 254");
  if (code !== undefined && (code < 0 || code > 255)) match.fail("code", "0 to 255");
  return { type, ...optional("code", code) };
}

function httpOf(rule: JsonReader): Rule["http"] {
  const http = rule.object("http");
  if (http === undefined) return undefined;
  const methods = http.texts("methods");
  const paths = http.objects("paths").map((path) => {
    const exact = path.filled("exact");
    const prefix = path.filled("prefix");
    if (exact !== undefined && prefix === undefined) return { exact };
    return prefix !== undefined && exact === undefined
      ? { prefix }
      : path.fail("exact", "exactly one of exact and prefix");
  });
  return { ...(methods.length === 0 ? {} : { methods }), ...(paths.length === 0 ? {} : { paths }) };
}

function optional<N extends string, V>(name: N, value: V | undefined): { readonly [P in N]?: V } {
  return (value === undefined ? {} : { [name]: value }) as { readonly [P in N]?: V };
}
