// Kubernetes' NetworkPolicy as a NetworkPolicy of ours. A rule that cannot be converted is left out and reported: these
// policies only ever allow, so what is left out stays closed.
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

/** The object our controller keeps in etcd for a NetworkPolicy of Kubernetes. */
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

/** Always Ingress before Egress. Not said: ingress, and egress where there are egress rules. */
function typesOf(spec: JsonReader): readonly ("Ingress" | "Egress")[] {
  const said = spec.texts("policyTypes");
  if (said.length === 0) return spec.list("egress").length === 0 ? ["Ingress"] : ["Ingress", "Egress"];
  return (["Ingress", "Egress"] as const).filter((type) => said.includes(type));
}

// Limits of one direction of one policy. A policy of 1.5 MB could ask for 10⁹ matches of ports, or stop the agent for seconds
// with 70,000 rules. The rule that exceeds a limit and all rules after it are left out.
/** Ports times peers. */
const MOST_PORT_MATCHES = 100_000;
const MOST_RULES = 5000;
/** From so many on, peers that are only prefixes share one rule. Below it there is one rule for each, as in Calico. */
const MANY_PEERS = 1000;

function convertAll(rules: readonly JsonReader[], peers: "from" | "to", report: ReportProblem): readonly RuleJson[] {
  let portMatchesLeft = MOST_PORT_MATCHES;
  const all: RuleJson[] = [];
  for (const rule of rules)
    try {
      portMatchesLeft -= portMatches(rule, peers);
      const converted = portMatchesLeft < 0 ? undefined : convertRule(rule, peers, MOST_RULES - all.length);
      if (converted === undefined) {
        const limits = `at most ${MOST_RULES} rules and ${MOST_PORT_MATCHES} ports times peers in one policy`;
        report(`${rule.at(peers)}: want ${limits}: rule left out, and all after it`);
        break;
      }
      for (const each of converted) all.push(each);
    } catch (error) {
      if (!isValueError(error)) throw error;
      report(`${error.message}: rule left out`);
    }
  return all;
}

/** Every port is matched for every peer. Without several of both, a rule has no more matches than it is long. */
function portMatches(rule: JsonReader, peers: "from" | "to"): number {
  const [ports, others] = [rule.list("ports").length, rule.list(peers).length];
  return ports > 1 && others > 1 ? ports * others : 0;
}

/** One rule per protocol and peer; undefined if there were more of them than `most`. */
function convertRule(rule: JsonReader, peers: "from" | "to", most: number): readonly RuleJson[] | undefined {
  const protocols = portsByProtocol(rule.objects("ports"));
  const entities = convertPeers(rule.objects(peers), Math.floor(most / protocols.length));
  return entities === undefined
    ? undefined
    : protocols.flatMap(({ protocol, ports }) =>
        entities.map((peer) => buildRule("Allow", peers, protocol, ports, peer)),
      );
}

/** Ports are always the destination's; the peer is the source of what comes in. */
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

/** By protocol in alphabetical order; no ports at all = any protocol. */
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

/** Undefined = all ports of the protocol. */
function portOf(entry: JsonReader): PortMatch | undefined {
  const port = entry.raw("port");
  const end = entry.whole("endPort");
  if (port === undefined) return end === undefined ? undefined : entry.fail("endPort", "a port beside it");
  if (typeof port === "string" && !/^\d+$/.test(port))
    return port === "" || end !== undefined
      ? entry.fail("port", "a port, a number where there is an end")
      : { name: port };
  const first = Number(port);
  const last = end ?? first;
  if (!Number.isInteger(first) || first < 1 || last > 65535 || last < first)
    return entry.fail("port", "1 to 65535, the end not before the start");
  return { first, last };
}

/** Undefined if more than `most` rules would be needed. No peers are everybody. */
function convertPeers(peers: readonly JsonReader[], most: number): readonly EntityJson[] | undefined {
  if (peers.length <= MANY_PEERS) {
    if (Math.max(1, peers.length) > most) return undefined;
    return peers.length === 0 ? [{}] : peers.map(convertPeer);
  }
  const others: EntityJson[] = [];
  const nets: Cidr[] = [];
  for (const peer of peers) {
    const entity = convertPeer(peer);
    if (entity.nets === undefined || entity.notNets !== undefined) others.push(entity);
    else for (const net of entity.nets) nets.push(net);
    if (others.length + Math.min(1, nets.length) > most) return undefined;
  }
  return nets.length === 0 ? others : [{ nets }, ...others];
}

function convertPeer(peer: JsonReader): EntityJson {
  const block = peer.object("ipBlock");
  if (block !== undefined) return convertBlock(block);
  const pods = peer.object("podSelector");
  const namespaces = peer.object("namespaceSelector");
  // An API server takes none such, but may have dropped from one what it did not know: it is not everybody.
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
