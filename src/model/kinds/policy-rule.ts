// Defines the schema of a rule of a policy or profile, and checks the rules across its fields.
import * as z from "zod/mini";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { type Report, withSuggestion } from "../validation/faults.ts";
import { isMaskedCidr, isPortName, isQualifiedName } from "../validation/formats.ts";
import { hasPorts, PROTOCOL_NAMES, parsePort } from "../validation/numbers.ts";
import type { PortValue, ProtocolValue } from "../validation/numbers.ts";
import {
  choice,
  distinct,
  extra,
  field,
  integer,
  limited,
  list,
  map,
  object,
  pointer,
  port,
  protocol,
  selector,
  subdomain,
  text,
} from "./fields.ts";
import type { Stored } from "./kind.ts";

const icmp = object({ type: pointer(integer(0, 254)), code: pointer(integer(0, 255)) });

const kubernetesName = () => extra(subdomain(), { limit: 253 });
const entityRule = object({
  nets: field(list(text(), 256)),
  selector: field(selector(1024)),
  namespaceSelector: field(selector(1024)),
  services: pointer(object({ name: field(kubernetesName()), namespace: field(kubernetesName()) })),
  ports: field(list(port(), 50)),
  notNets: field(list(text(), 256)),
  notSelector: field(selector(1024)),
  notPorts: field(list(port(), 50)),
  serviceAccounts: pointer(object({ names: field(list(text())), selector: field(selector()) })),
});
export type EntityRule = Stored<typeof entityRule>;

export const policyRule = object({
  action: choice("Allow", "Deny", "Log", "Pass"),
  ipVersion: pointer(z.literal([4, 6])),
  protocol: pointer(protocol()),
  icmp: pointer(icmp),
  notProtocol: pointer(protocol()),
  notICMP: pointer(icmp),
  source: field(entityRule),
  destination: field(entityRule),
  http: pointer(
    object({
      methods: field(distinct(text(), 20)),
      paths: field(list(object({ exact: field(limited(1024)), prefix: field(limited(1024)) }), 20)),
    }),
  ),
  metadata: pointer(object({ annotations: field(map()) })),
});
export type PolicyRule = Stored<typeof policyRule>;

type Path = readonly (string | number)[];
export type RuleHome = "namespaced" | "global" | "profile";

/** Reports faults that the schema does not detect. */
export function checkRule(
  rule: PolicyRule,
  direction: "ingress" | "egress",
  home: RuleHome,
  at: Path,
  report: Report,
): void {
  checkProtocol(rule, "protocol", at, report);
  checkProtocol(rule, "notProtocol", at, report);
  checkIcmp(rule, at, report);
  if (rule.http !== undefined) checkHttp(rule, direction, at, report);
  if (rule.metadata?.annotations !== undefined)
    checkAnnotations(rule.metadata.annotations, [...at, "metadata", "annotations"], report);
  if (rule.source !== undefined)
    checkEntity(rule, rule.source, { direction, home, side: "source" }, [...at, "source"], report);
  if (rule.destination !== undefined)
    checkEntity(rule, rule.destination, { direction, home, side: "destination" }, [...at, "destination"], report);
  checkFamilies(rule, at, report);
}

const PROTOCOLS: ReadonlySet<ProtocolValue> = new Set(PROTOCOL_NAMES);

/** For an unknown protocol, which may be a misspelt `TCP`, no other faults that depend on the protocol are reported. */
const isProtocol = (protocol: ProtocolValue): boolean =>
  typeof protocol === "string" ? PROTOCOLS.has(protocol) : protocol !== 0;

function checkProtocol(rule: PolicyRule, name: "protocol" | "notProtocol", at: Path, report: Report): void {
  const protocol = rule[name];
  if (protocol === undefined || isProtocol(protocol)) return;
  const wanted = `want ${PROTOCOL_NAMES.join(", ")} or a number from 1 to 255`;
  report([...at, name], protocol, withSuggestion(wanted, protocol, PROTOCOL_NAMES));
}

const ICMP_FAMILY: ReadonlyMap<ProtocolValue | undefined, IpVersion> = new Map<ProtocolValue, IpVersion>([
  ["ICMP", 4],
  [1, 4],
  ["ICMPv6", 6],
  [58, 6],
]);

function checkIcmp(rule: PolicyRule, at: Path, report: Report): void {
  for (const name of ["icmp", "notICMP"] as const) {
    const match = rule[name];
    if (match?.code !== undefined && match.type === undefined)
      report([...at, name, "code"], match.code, "requires type");
  }
  const { protocol } = rule;
  if (rule.icmp !== undefined && !ICMP_FAMILY.has(protocol) && (protocol === undefined || isProtocol(protocol)))
    report([...at, "icmp"], rule.icmp, "requires protocol ICMP or ICMPv6");
  for (const name of ["protocol", "notProtocol"] as const) {
    const family = ICMP_FAMILY.get(rule[name]);
    if (family !== undefined && rule.ipVersion !== undefined && rule.ipVersion !== family)
      report([...at, "ipVersion"], rule.ipVersion, `${name} ${rule[name]} requires ipVersion ${family}`);
  }
}

function checkHttp(rule: PolicyRule, direction: "ingress" | "egress", at: Path, report: Report): void {
  const path = [...at, "http"];
  if (direction === "egress") report(path, undefined, "is possible only in ingress rules");
  if (rule.action !== "Allow") report(path, undefined, "is possible only with action Allow");
  const { protocol } = rule;
  if (protocol !== undefined && isProtocol(protocol) && protocol !== "TCP" && protocol !== 6)
    report([...at, "protocol"], protocol, "want TCP or no protocol in a rule with http");
  for (const [i, match] of (rule.http?.paths ?? []).entries()) {
    const value = match.exact ?? match.prefix;
    if (value === undefined || (match.exact !== undefined && match.prefix !== undefined))
      report([...path, "paths", i], undefined, "want exactly one of exact and prefix");
    else if (!value.startsWith("/") || /[?# ]/.test(value))
      report([...path, "paths", i], value, "want a path that starts with / and has no ?, # or blank");
  }
}

/** Annotation keys are qualified names in any letter case. The total size is limited to 256 KiB. */
export function checkAnnotations(annotations: Readonly<Record<string, string>>, at: Path, report: Report): void {
  let size = 0;
  for (const [key, value] of Object.entries(annotations)) {
    size += key.length + value.length;
    if (!isQualifiedName(key.toLowerCase()))
      report([...at, key], undefined, "want a key such as note or example.org/note");
  }
  if (size > 256 * 1024) report(at, undefined, `has a total of ${size} bytes, want at most ${256 * 1024}`);
}

interface Side {
  readonly direction: "ingress" | "egress";
  readonly home: RuleHome;
  readonly side: "source" | "destination";
}

function checkEntity(rule: PolicyRule, entity: EntityRule, where: Side, at: Path, report: Report): void {
  checkPorts(rule, "ports", entity.ports, at, report);
  checkPorts(rule, "notPorts", entity.notPorts, at, report);
  checkNets("nets", entity.nets, at, report);
  checkNets("notNets", entity.notNets, at, report);
  for (const [i, net] of (entity.notNets ?? []).entries())
    if (net === "0.0.0.0/0" || net === "::/0")
      report([...at, "notNets", i], net, "excludes all addresses, so the rule would never match");
  if (entity.selector?.includes("global("))
    report([...at, "selector"], entity.selector, "global() is possible only in the namespaceSelector of a rule");
  if (entity.namespaceSelector?.includes("global(") && !/^[ \t]*global\([ \t]*\)[ \t]*$/.test(entity.namespaceSelector))
    report([...at, "namespaceSelector"], entity.namespaceSelector, "global() cannot be combined with other terms");
  if (entity.services !== undefined) checkServices(entity, where, at, report);
}

function checkPorts(
  rule: PolicyRule,
  name: "ports" | "notPorts",
  ports: readonly PortValue[] | undefined,
  at: Path,
  report: Report,
): void {
  if (ports === undefined) return;
  const { protocol } = rule;
  if (protocol !== undefined && isProtocol(protocol) && !hasPorts(protocol)) {
    report([...at, name], ports, `protocol ${protocol} has no ports: want TCP, UDP or SCTP`);
    return;
  }
  for (const [i, value] of ports.entries()) {
    const meaning = parsePort(value);
    if ("name" in meaning) {
      if (!isPortName(meaning.name))
        report([...at, name, i], value, "want a port name: at most 15 of a-z, 0-9 and -, with a letter");
    } else if (meaning.min < 1) report([...at, name, i], value, "want ports from 1 to 65535");
    else if (protocol === undefined)
      report([...at, name, i], value, "a port number requires protocol TCP, UDP or SCTP in the rule");
  }
}

function checkNets(name: "nets" | "notNets", nets: readonly string[] | undefined, at: Path, report: Report): void {
  for (const [i, net] of (nets ?? []).entries())
    if (!isMaskedCidr(net))
      report([...at, name, i], net, "want a CIDR without host bits, such as 10.0.0.0/24 or fd00::/64");
}

function checkServices(entity: EntityRule, where: Side, at: Path, report: Report): void {
  const path = [...at, "services"];
  const { services } = entity;
  if (services?.name === undefined) report([...path, "name"], undefined, "want the service's name");
  const wantedSide = where.direction === "ingress" ? "source" : "destination";
  if (where.side !== wantedSide)
    report(path, services, `is possible only in the ${wantedSide} of ${where.direction} rules`);
  if (where.home === "global" && services?.namespace === undefined)
    report([...path, "namespace"], undefined, "is required in a global policy");
  for (const other of ["selector", "notSelector", "namespaceSelector", "serviceAccounts", "nets", "notNets"] as const)
    if (entity[other] !== undefined) report([...at, other], entity[other], "cannot be combined with services");
  if (where.side === "destination")
    for (const other of ["ports", "notPorts"] as const)
      if (entity[other] !== undefined)
        report([...at, other], entity[other], "cannot be combined with services, which define the ports");
}

/** All CIDRs of a rule must have the same IP version, which must equal `ipVersion` if that is set. */
function checkFamilies(rule: PolicyRule, at: Path, report: Report): void {
  let family: IpVersion | undefined = rule.ipVersion;
  for (const side of ["source", "destination"] as const)
    for (const name of ["nets", "notNets"] as const)
      for (const [i, net] of (rule[side]?.[name] ?? []).entries()) {
        const own: IpVersion = net.includes(":") ? 6 : 4;
        if (family === undefined) family = own;
        else if (own !== family) {
          const other =
            rule.ipVersion === undefined ? `other CIDRs of this rule are IPv${family}` : `ipVersion is ${family}`;
          report([...at, side, name, i], net, `is IPv${own}, but ${other}`);
          return;
        }
      }
}
