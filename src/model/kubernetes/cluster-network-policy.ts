// Converts the Kubernetes ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2) to a global policy in the tier before
// or after all others. A rule that cannot be converted must not allow traffic: an Accept rule is ignored, any other rule
// denies all traffic.
import { tryParseCidr } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { quote } from "../../lib/shorten.ts";
import type { Resource } from "../resource.ts";
import { isValueError, type ReportProblem } from "../validation/value-error.ts";
import { IS_KUBERNETES, namespaceSelectorText, podSelectorText } from "./label-selector.ts";
import { buildRule, type EntityJson, type PolicySpecJson, type RuleJson } from "./network-policy.ts";
import { type PortMatch, type PortValue, simplifyPorts } from "./port-list.ts";

const TIERS: ReadonlyMap<unknown, string> = new Map([
  ["Admin", "kube-admin"],
  ["Baseline", "kube-baseline"],
]);
const ACTIONS: ReadonlyMap<unknown, RuleJson["action"]> = new Map([
  ["Accept", "Allow"],
  ["Deny", "Deny"],
  ["Pass", "Pass"],
] as const);

/** Returns undefined for a policy with an unknown tier or without a subject, which is reported. */
export function convertClusterNetworkPolicy(resource: Resource, report: ReportProblem): PolicySpecJson | undefined {
  const spec = new JsonReader(resource.spec, "spec");
  const tier = TIERS.get(spec.raw("tier"));
  const subject = convertSubject(spec.object("subject"));
  if (tier === undefined || subject === undefined) {
    report(tier === undefined ? "spec.tier: want Admin or Baseline" : "spec.subject: want namespaces or pods");
    return undefined;
  }
  const ingress = spec.objects("ingress").flatMap((rule) => convertRule(rule, "from", report));
  const egress = spec.objects("egress").flatMap((rule) => convertRule(rule, "to", report));
  const types: PolicySpecJson["types"] = [
    ...(ingress.length > 0 ? (["Ingress"] as const) : []),
    ...(egress.length > 0 ? (["Egress"] as const) : []),
  ];
  return {
    tier,
    order: spec.number("priority") ?? 0,
    ...subject,
    ...(ingress.length === 0 ? {} : { ingress }),
    ...(egress.length === 0 ? {} : { egress }),
    types,
  };
}

function convertSubject(
  subject: JsonReader | undefined,
): { readonly selector: string; readonly namespaceSelector: string } | undefined {
  const namespaces = subject?.object("namespaces");
  if (namespaces !== undefined)
    return { selector: IS_KUBERNETES, namespaceSelector: namespaceSelectorText(namespaces) };
  const pods = subject?.object("pods");
  return pods === undefined ? undefined : podsEntity(pods);
}

function podsEntity(pods: JsonReader): { readonly selector: string; readonly namespaceSelector: string } {
  const namespaces = pods.object("namespaceSelector");
  return {
    selector: podSelectorText(pods.object("podSelector")),
    namespaceSelector: namespaces === undefined ? "all()" : namespaceSelectorText(namespaces),
  };
}

function convertRule(rule: JsonReader, peers: "from" | "to", report: ReportProblem): readonly RuleJson[] {
  const said = rule.raw("name");
  const name = typeof said === "string" && said !== "" ? said : undefined;
  const action = ACTIONS.get(rule.raw("action"));
  const named = (converted: RuleJson): RuleJson =>
    name === undefined ? converted : { ...converted, metadata: { annotations: { name } } };
  try {
    if (action === undefined) return rule.fail("action", "Accept, Deny or Pass");
    const protocols = convertProtocols(rule);
    const entities = rule.objects(peers).map((peer) => convertPeer(peer, peers));
    if (entities.length === 0) return rule.fail(peers, "at least one peer");
    return protocols.flatMap(({ protocol, ports }) =>
      entities.map((peer) => named(buildRule(action, peers, protocol, ports, peer))),
    );
  } catch (error) {
    if (!isValueError(error)) throw error;
    if (action === "Allow") {
      report(`${error.message}: rule ignored`);
      return [];
    }
    report(`${error.message}: the rule denies all traffic`);
    return [{ action: "Deny" }];
  }
}

function convertPeer(peer: JsonReader, peers: "from" | "to"): EntityJson {
  const namespaces = peer.object("namespaces");
  if (namespaces !== undefined) return { namespaceSelector: namespaceSelectorText(namespaces) };
  const pods = peer.object("pods");
  if (pods !== undefined) return podsEntity(pods);
  const networks = peers === "to" ? peer.texts("networks") : [];
  if (networks.length === 0) return peer.fail(peers === "to" ? "networks" : "pods", "a known type of peer");
  return {
    nets: networks.map((text) => tryParseCidr(text) ?? peer.fail("networks", `CIDRs, not ${quote(text)}`)),
  };
}

interface ProtocolPorts {
  readonly protocol?: string;
  readonly ports: readonly PortValue[];
}

/** Returns named ports, which may have any protocol, first; then SCTP, TCP, UDP. An empty list matches all traffic. */
function convertProtocols(rule: JsonReader): readonly ProtocolPorts[] {
  const entries = rule.objects("protocols");
  if (entries.length === 0) return [{ ports: [] }];
  const names: PortMatch[] = [];
  const numbers = new Map<string, PortMatch[] | "all">();
  for (const entry of entries) {
    const name = entry.filled("destinationNamedPort");
    const protocol = (["sctp", "tcp", "udp"] as const).find((one) => entry.raw(one) !== undefined);
    if (name !== undefined) names.push({ name });
    else if (protocol === undefined) return entry.fail("tcp", "tcp, udp, sctp or destinationNamedPort");
    else {
      const port = destinationPort(entry.object(protocol)?.object("destinationPort"));
      const others = numbers.get(protocol);
      if (port === undefined || others === "all") numbers.set(protocol, "all");
      else if (others === undefined) numbers.set(protocol, [port]);
      else others.push(port);
    }
  }
  return [
    ...(names.length === 0 ? [] : [{ ports: simplifyPorts(names) }]),
    ...[...numbers]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([protocol, ports]) => ({
        protocol: protocol.toUpperCase(),
        ports: ports === "all" ? [] : simplifyPorts(ports),
      })),
  ];
}

function destinationPort(port: JsonReader | undefined): PortMatch | undefined {
  if (port === undefined) return undefined;
  const range = port.object("range");
  const first = range === undefined ? port.whole("number") : range.whole("start");
  const last = range === undefined ? first : range.whole("end");
  if (first === undefined || last === undefined || first < 1 || last > 65535 || last < first)
    return port.fail("number", "1 to 65535, or a range");
  return { first, last };
}
