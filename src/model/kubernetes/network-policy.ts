// Converts Kubernetes NetworkPolicies to Calico NetworkPolicies. A rule that cannot be converted is reported and ignored.
// This is safe because the rules of these policies only allow traffic.
import { type Cidr, tryParseCidr } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { quote } from "../../lib/shorten.ts";
import { DEFAULT_TIER, KUBERNETES_POLICY_PREFIX } from "../keys/policy-names.ts";
import { API_VERSION, type Resource } from "../resource.ts";
import { isValueError, type ReportProblem } from "../validation/value-error.ts";
import { namespaceSelectorText, podSelectorText } from "./label-selector.ts";
import { type PortMatch, type PortValue, simplifyPorts } from "./port-list.ts";

const ORDER = 1000;

export interface EntityJson {
  readonly nets?: readonly Cidr[];
  readonly notNets?: readonly Cidr[];
  readonly selector?: string;
  readonly namespaceSelector?: string;
  readonly ports?: readonly PortValue[];
}
export interface RuleJson {
  readonly action: "Allow" | "Deny" | "Pass";
  readonly protocol?: string;
  readonly source?: EntityJson;
  readonly destination?: EntityJson;
  readonly metadata?: { readonly annotations: Readonly<Record<string, string>> };
}
export interface PolicySpecJson {
  readonly tier: string;
  readonly order: number;
  readonly ingress?: readonly RuleJson[];
  readonly egress?: readonly RuleJson[];
  readonly selector: string;
  readonly namespaceSelector?: string;
  readonly types: readonly ("Ingress" | "Egress")[];
}

/** Returns the object that the policy controller stores in etcd for a Kubernetes NetworkPolicy. */
export function networkPolicyFromKubernetes(
  object: Resource,
  report: ReportProblem,
): Resource<"NetworkPolicy", PolicySpecJson> {
  const { name, namespace } = object.metadata;
  return {
    apiVersion: API_VERSION,
    kind: "NetworkPolicy",
    metadata: { name: KUBERNETES_POLICY_PREFIX + name, ...(namespace === undefined ? {} : { namespace }) },
    spec: convertKubernetesPolicySpec(object.spec, report),
  };
}

export function convertKubernetesPolicySpec(json: unknown, report: ReportProblem): PolicySpecJson {
  const spec = new JsonReader(json, "spec");
  const ingress = convertAll(spec.objects("ingress"), "from", report);
  const egress = convertAll(spec.objects("egress"), "to", report);
  return {
    tier: DEFAULT_TIER,
    order: ORDER,
    ...(ingress.length === 0 ? {} : { ingress }),
    ...(egress.length === 0 ? {} : { egress }),
    selector: podSelectorText(spec.object("podSelector")),
    types: typesOf(spec),
  };
}

/** Returns Ingress before Egress. The default is Ingress, and Egress if the policy has egress rules. */
function typesOf(spec: JsonReader): readonly ("Ingress" | "Egress")[] {
  const types = spec.texts("policyTypes");
  if (types.length === 0) return spec.list("egress").length === 0 ? ["Ingress"] : ["Ingress", "Egress"];
  return (["Ingress", "Egress"] as const).filter((type) => types.includes(type));
}

// Limits for one direction of one policy. A policy of 1.5 MB could require 10⁹ port matches, or block Felix for seconds
// with 70,000 rules. The rule that exceeds a limit and all later rules are ignored.
/** The number of ports times the number of peers. */
const MAX_PORT_MATCHES = 100_000;
const MAX_RULES = 5000;
/** If a rule has more peers, those that are only prefixes share one rule. Otherwise each has its own rule, as in Calico. */
const MANY_PEERS = 1000;

function convertAll(rules: readonly JsonReader[], peers: "from" | "to", report: ReportProblem): readonly RuleJson[] {
  let portMatchesLeft = MAX_PORT_MATCHES;
  const all: RuleJson[] = [];
  for (const rule of rules)
    try {
      portMatchesLeft -= portMatches(rule, peers);
      const converted = portMatchesLeft < 0 ? undefined : convertRule(rule, peers, MAX_RULES - all.length);
      if (converted === undefined) {
        const limits = `at most ${MAX_RULES} rules and ${MAX_PORT_MATCHES} ports times peers in one policy`;
        report(`${rule.at(peers)}: want ${limits}: this rule and all later rules ignored`);
        break;
      }
      for (const each of converted) all.push(each);
    } catch (error) {
      if (!isValueError(error)) throw error;
      report(`${error.message}: rule ignored`);
    }
  return all;
}

/** Every port is matched for every peer. Returns 0 unless there are several of both: the input is longer then. */
function portMatches(rule: JsonReader, peers: "from" | "to"): number {
  const [ports, others] = [rule.list("ports").length, rule.list(peers).length];
  return ports > 1 && others > 1 ? ports * others : 0;
}

/** Returns one rule per protocol and peer; undefined if these are more than `maxRules`. */
function convertRule(rule: JsonReader, peers: "from" | "to", maxRules: number): readonly RuleJson[] | undefined {
  const protocols = portsByProtocol(rule.objects("ports"));
  const entities = convertPeers(rule.objects(peers), Math.floor(maxRules / protocols.length));
  return entities === undefined
    ? undefined
    : protocols.flatMap(({ protocol, ports }) =>
        entities.map((peer) => buildRule("Allow", peers, protocol, ports, peer)),
      );
}

/** The ports are those of the destination. The peer is the source of ingress rules and the destination of egress rules. */
export function buildRule(
  action: RuleJson["action"],
  peers: "from" | "to",
  protocol: string | undefined,
  ports: readonly PortValue[],
  peer: EntityJson,
): RuleJson {
  const portPart = ports.length === 0 ? {} : { ports };
  const source = peers === "from" ? peer : {};
  const destination = peers === "from" ? portPart : { ...peer, ...portPart };
  return {
    action,
    ...(protocol === undefined ? {} : { protocol }),
    ...(Object.keys(source).length === 0 ? {} : { source }),
    ...(Object.keys(destination).length === 0 ? {} : { destination }),
  };
}

interface ProtocolPorts {
  readonly protocol?: string;
  readonly ports: readonly PortValue[];
}

/** Sorted by protocol. An empty list of ports matches any protocol. */
function portsByProtocol(entries: readonly JsonReader[]): readonly ProtocolPorts[] {
  if (entries.length === 0) return [{ ports: [] }];
  const found = new Map<string, PortMatch[] | "all">();
  for (const entry of entries) {
    const protocol = entry.filled("protocol") ?? "TCP";
    const port = portOf(entry);
    const others = found.get(protocol);
    if (port === undefined || others === "all") found.set(protocol, "all");
    else if (others === undefined) found.set(protocol, [port]);
    else others.push(port);
  }
  return [...found]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([protocol, ports]) => ({ protocol, ports: ports === "all" ? [] : simplifyPorts(ports) }));
}

/** Returns undefined for all ports of the protocol. */
function portOf(entry: JsonReader): PortMatch | undefined {
  const port = entry.raw("port");
  const end = entry.whole("endPort");
  if (port === undefined) return end === undefined ? undefined : entry.fail("endPort", "a port too");
  if (typeof port === "string" && !/^\d+$/.test(port))
    return port === "" || end !== undefined
      ? entry.fail("port", "a port, which must be a number if endPort is set")
      : { name: port };
  const first = Number(port);
  const last = end ?? first;
  if (!Number.isInteger(first) || first < 1 || last > 65535 || last < first)
    return entry.fail("port", "1 to 65535, with endPort not less than port");
  return { first, last };
}

/** Returns undefined if more than `maxRules` rules would be required. An empty list matches every peer. */
function convertPeers(peers: readonly JsonReader[], maxRules: number): readonly EntityJson[] | undefined {
  if (peers.length <= MANY_PEERS) {
    if (Math.max(1, peers.length) > maxRules) return undefined;
    return peers.length === 0 ? [{}] : peers.map(convertPeer);
  }
  const others: EntityJson[] = [];
  const nets: Cidr[] = [];
  for (const peer of peers) {
    const entity = convertPeer(peer);
    if (entity.nets === undefined || entity.notNets !== undefined) others.push(entity);
    else for (const net of entity.nets) nets.push(net);
    if (others.length + Math.min(1, nets.length) > maxRules) return undefined;
  }
  return nets.length === 0 ? others : [{ nets }, ...others];
}

function convertPeer(peer: JsonReader): EntityJson {
  const block = peer.object("ipBlock");
  if (block !== undefined) return convertBlock(block);
  const pods = peer.object("podSelector");
  const namespaces = peer.object("namespaceSelector");
  // An API server rejects an empty peer, but it may have removed an unknown field. An empty peer must not match all traffic.
  if (pods === undefined && namespaces === undefined)
    return peer.fail("podSelector", "podSelector, namespaceSelector or ipBlock");
  return {
    selector: podSelectorText(pods),
    ...(namespaces === undefined ? {} : { namespaceSelector: namespaceSelectorText(namespaces) }),
  };
}

function convertBlock(block: JsonReader): EntityJson {
  const cidr = (name: string, text: string) => tryParseCidr(text) ?? block.fail(name, `a CIDR, not ${quote(text)}`);
  const except = block.texts("except").map((text) => cidr("except", text));
  return { nets: [cidr("cidr", block.text("cidr") ?? "")], ...(except.length === 0 ? {} : { notNets: except }) };
}
