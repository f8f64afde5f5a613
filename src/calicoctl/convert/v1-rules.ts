// Converts rules of calicoctl v1 policies and profiles to v3: actions and protocols change case, single nets become lists, and
// tags become selectors.
import { tryParseCidr } from "../../lib/ip/ip.ts";
import { ConvertFault } from "./fault.ts";
import { Fields } from "./fields.ts";

const ACTIONS: Readonly<Record<string, string>> = { allow: "Allow", deny: "Deny", log: "Log", pass: "Pass" };
const PROTOCOLS: Readonly<Record<string, string>> = {
  tcp: "TCP",
  udp: "UDP",
  icmp: "ICMP",
  icmpv6: "ICMPv6",
  sctp: "SCTP",
  udplite: "UDPLite",
};

export function convertRules(list: unknown, field: string): unknown[] {
  return Fields.list(list, field).map((rule, i) => convertRule(new Fields(rule, `${field}[${i}]`)));
}

function convertRule(rule: Fields): unknown {
  const action = rule.text("action") ?? "";
  const converted = ACTIONS[action];
  if (converted === undefined)
    throw new ConvertFault(rule.name("action"), `is '${action}', want allow, deny, log or pass`);
  const result = {
    action: converted,
    ipVersion: rule.any("ipVersion"),
    protocol: convertProtocol(rule.any("protocol")),
    notProtocol: convertProtocol(rule.any("notProtocol") ?? rule.any("!protocol")),
    icmp: rule.any("icmp"),
    notICMP: rule.any("notICMP") ?? rule.any("!icmp"),
    source: convertEntity(rule.child("source")),
    destination: convertEntity(rule.child("destination")),
  };
  rule.end();
  return withoutUnset(result);
}

function convertProtocol(protocol: unknown): unknown {
  return typeof protocol === "string" ? (PROTOCOLS[protocol.toLowerCase()] ?? protocol) : protocol;
}

function convertEntity(entity: Fields): unknown {
  const nets = (...names: readonly (readonly [string, string])[]) => {
    const all = names
      .flatMap(([one, many]) => [entity.text(one), ...entity.texts(many)])
      .filter((net) => net !== undefined);
    const [[, field] = ["", ""]] = names;
    return all.length === 0 ? undefined : all.map((net) => masked(net, entity.name(field)));
  };
  const result = {
    nets: nets(["net", "nets"]),
    notNets: nets(["notNet", "notNets"], ["!net", "!nets"]),
    selector: joinTag(convertSelector(entity.text("selector")), entity.text("tag")),
    notSelector: joinTag(
      convertSelector(entity.text("notSelector") ?? entity.text("!selector")),
      entity.text("notTag") ?? entity.text("!tag"),
    ),
    ports: entity.any("ports"),
    notPorts: entity.any("notPorts") ?? entity.any("!ports"),
  };
  entity.end();
  return withoutUnset(result);
}

function masked(net: string, field: string): string {
  const cidr = tryParseCidr(net);
  if (cidr === undefined) throw new ConvertFault(field, `'${net}' is not a CIDR`);
  return cidr;
}

/** In v3, a tag is a label with an empty value. */
function joinTag(selector: string | undefined, tag: string | undefined): string | undefined {
  if (tag === undefined) return selector;
  return selector === undefined ? `${tag} == ''` : `(${selector}) && ${tag} == ''`;
}

/** In v3, the label with the namespace of a workload has another name. */
export function convertSelector(selector: string | undefined): string | undefined {
  return selector?.replaceAll("calico/k8s_ns", "projectcalico.org/namespace");
}

export function withoutUnset(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
