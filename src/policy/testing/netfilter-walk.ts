// Evaluates a packet naively, as a reference for tests of the real evaluator: expands every IP set to a list of
// addresses, turns every policy into a chain of rules with marks, and walks the kernel's hooks host by host, as Calico
// programs them. It is slow and shares no code with the real evaluator.
import type { IpAddress } from "../../lib/ip/ip.ts";
import {
  type HostEndpoint,
  type KeyValue,
  type Policy,
  type Rule,
  type RuleSide,
  type Selector,
  type WorkloadEndpoint,
} from "../../model/index.ts";
import type { Packet } from "../packet.ts";

type Plain = Record<string, string>;
interface Item {
  readonly addresses: readonly string[];
  readonly labels: Plain;
  readonly ports: readonly { name: string; protocol: string | number; port: number }[];
}
interface Wep {
  readonly host: string;
  readonly item: Item;
  readonly value: WorkloadEndpoint;
}
interface Hep {
  readonly host: string;
  readonly id: string;
  readonly item: Item;
  readonly value: HostEndpoint;
}

const PROTOCOLS: Record<string, number> = { icmp: 1, tcp: 6, udp: 17, icmpv6: 58, sctp: 132, udplite: 136 };
const numberOf = (protocol: string | number) =>
  typeof protocol === "number" ? protocol : (PROTOCOLS[protocol.toLowerCase()] ?? -1);

/** Returns an address as a string of 0 and 1, for comparing prefixes. */
function bits(address: string): string {
  if (!address.includes(":"))
    return address
      .split(".")
      .map((part) => Number(part).toString(2).padStart(8, "0"))
      .join("");
  const [head = "", tail] = address.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const groups = [
    ...left,
    ...Array<string>(tail === undefined ? 0 : 8 - left.length - right.length).fill("0"),
    ...right,
  ];
  return groups.map((group) => Number.parseInt(group, 16).toString(2).padStart(16, "0")).join("");
}
function inside(cidr: string, address: string): boolean {
  const [net = "", length] = cidr.split("/");
  return net.includes(":") === address.includes(":") && bits(address).startsWith(bits(net).slice(0, Number(length)));
}

function selects(selector: Selector, labels: Plain): boolean {
  const value = "label" in selector ? labels[selector.label] : undefined;
  switch (selector.kind) {
    case "all":
    case "global":
      return true;
    case "has":
      return value !== undefined;
    case "equals":
      return value === selector.value;
    case "notEquals":
      return value !== selector.value;
    case "in":
      return value !== undefined && selector.values.includes(value);
    case "notIn":
      return value === undefined || !selector.values.includes(value);
    case "contains":
      return value?.includes(selector.value) ?? false;
    case "startsWith":
      return value?.startsWith(selector.value) ?? false;
    case "endsWith":
      return value?.endsWith(selector.value) ?? false;
    case "not":
      return !selects(selector.operand, labels);
    case "and":
      return selector.operands.every((operand) => selects(operand, labels));
    case "or":
      return selector.operands.some((operand) => selects(operand, labels));
  }
}

/** Returns what the kernel would do with a packet. `allAddresses` are all addresses that any IP set could contain. */
export function walkNetfilter(
  entries: readonly KeyValue[],
  allAddresses: readonly IpAddress[],
  packet: Packet,
  options: { established: boolean },
): "allow" | "deny" {
  const of = <T>(type: string) =>
    entries.filter((e) => e.key.type === type) as unknown as { key: Record<string, string>; value: T }[];
  const profileLabels = new Map(of<Plain>("profileLabels").map((e) => [e.key["name"], e.value]));
  const profileRules = new Map(
    of<{ inboundRules: Rule[]; outboundRules: Rule[] }>("profileRules").map((e) => [e.key["name"], e.value]),
  );
  const inherit = (own: Plain, profiles: readonly string[]): Plain =>
    Object.assign({}, ...profiles.toReversed().map((name) => profileLabels.get(name) ?? {}), own);
  const weps: Wep[] = of<WorkloadEndpoint>("workloadEndpoint").map(({ key, value }) => ({
    host: key["host"] ?? "",
    value,
    item: {
      addresses: [...value.ipv4Nets, ...value.ipv6Nets].map((net) => net.split("/")[0] ?? ""),
      labels: inherit(value.labels, value.profileIds),
      ports: [...value.ports],
    },
  }));
  const heps: Hep[] = of<HostEndpoint>("hostEndpoint").map(({ key, value }) => ({
    host: key["host"] ?? "",
    id: key["endpoint"] ?? "",
    value,
    item: {
      addresses: [...value.expectedIpv4Addrs, ...value.expectedIpv6Addrs],
      labels: inherit(value.labels, value.profileIds),
      ports: [...value.ports],
    },
  }));
  const sets: Item[] = of<{ nets: string[]; labels: Plain; profileIds: string[] }>("networkSet").map(({ value }) => ({
    addresses: allAddresses.filter((address) => value.nets.some((net) => inside(net, address))),
    labels: inherit(value.labels, value.profileIds),
    ports: [],
  }));
  const items = [...weps.map((w) => w.item), ...heps.map((h) => h.item), ...sets];
  const slices = entries
    .filter((e) => e.key.type === "resource" && e.key.kind === "KubernetesEndpointSlice")
    .map((e) => e.value) as unknown as {
    metadata: { namespace: string; labels: Plain };
    endpoints: { addresses: string[] }[];
    ports: { protocol: string; port: number }[];
  }[];

  const netSet = (selector: Selector) =>
    new Set(items.filter((item) => selects(selector, item.labels)).flatMap((item) => item.addresses));
  const portSet = (selector: Selector, protocol: string | number | undefined, name: string) => {
    const wanted =
      protocol === undefined ? undefined : [6, 17, 132].includes(numberOf(protocol)) ? numberOf(protocol) : 6;
    return new Set(
      items
        .filter((item) => selects(selector, item.labels))
        .flatMap((item) =>
          item.ports
            .filter((p) => p.name === name && (wanted === undefined || numberOf(p.protocol) === wanted))
            .flatMap((p) => item.addresses.map((a) => `${a},${numberOf(p.protocol)}:${p.port}`)),
        ),
    );
  };

  const version = packet.destination.includes(":") ? 6 : 4;
  function sideMatches(side: RuleSide, rule: Rule, which: "source" | "destination"): boolean {
    const address = packet[which];
    const port = which === "source" ? packet.sourcePort : packet.destinationPort;
    const member = `${address},${packet.protocol}:${port}`;
    let positive = side.selector?.tree;
    let negative = side.notSelector?.tree;
    if (positive !== undefined && negative !== undefined)
      [positive, negative] = [{ kind: "and", operands: [positive, { kind: "not", operand: negative }] }, undefined];
    const numeric = (list: RuleSide["ports"]) =>
      (list ?? []).some((p) => "min" in p && port !== undefined && port >= p.min && port <= p.max);
    const named = (list: RuleSide["ports"]) =>
      (list ?? []).some((p) => "name" in p && portSet(positive ?? { kind: "all" }, rule.protocol, p.name).has(member));
    const nets = (side.nets ?? []).filter((net) => net.includes(":") === (version === 6));
    if ((side.nets ?? []).length > 0 && !nets.some((net) => inside(net, address))) return false;
    if ((side.notNets ?? []).some((net) => inside(net, address))) return false;
    if (positive !== undefined && !netSet(positive).has(address)) return false;
    if (negative !== undefined && netSet(negative).has(address)) return false;
    if (side.service !== undefined) {
      const own = slices.filter(
        (s) =>
          s.metadata.namespace === side.service?.namespace &&
          s.metadata.labels["kubernetes.io/service-name"] === side.service?.name,
      );
      const members = own.flatMap((s) =>
        s.endpoints.flatMap((e) =>
          e.addresses.flatMap((a) =>
            which === "source" ? [a] : s.ports.map((p) => `${a},${numberOf(p.protocol)}:${p.port}`),
          ),
        ),
      );
      if (!members.includes(which === "source" ? address : member)) return false;
    }
    if ((side.ports ?? []).length > 0 && !numeric(side.ports) && !named(side.ports)) return false;
    return !numeric(side.notPorts) && !named(side.notPorts);
  }
  function ruleMatches(rule: Rule): boolean {
    const ruleVersion = rule.ipVersion ?? (rule.protocol === "icmp" ? 4 : rule.protocol === "icmpv6" ? 6 : version);
    if (ruleVersion !== version) return false;
    for (const list of [rule.source.nets, rule.source.notNets, rule.destination.nets, rule.destination.notNets])
      if (list !== undefined && list.length > 0 && list.every((net) => net.includes(":") !== (version === 6)))
        return false;
    if (rule.protocol !== undefined && numberOf(rule.protocol) !== packet.protocol) return false;
    if (rule.notProtocol !== undefined && numberOf(rule.notProtocol) === packet.protocol) return false;
    const icmp = (m: Rule["icmp"]) =>
      m !== undefined && packet.icmp?.type === m.type && (m.code === undefined || m.code === packet.icmp.code);
    if (rule.icmp !== undefined && !icmp(rule.icmp)) return false;
    if (icmp(rule.notIcmp)) return false;
    return sideMatches(rule.source, rule, "source") && sideMatches(rule.destination, rule, "destination");
  }

  const mark = { accept: false, pass: false };
  class Dropped extends Error {}
  /** Walks the chain of a policy or profile: the first rule that sets a mark ends it. */
  function chain(rules: readonly Rule[]): void {
    for (const rule of rules) {
      if (!ruleMatches(rule) || rule.action === "log") continue;
      if (rule.action === "deny") throw new Dropped();
      if (rule.action === "allow") mark.accept = true;
      else mark.pass = true;
      return;
    }
  }

  const tierEntries = of<{ order?: number; defaultAction: string }>("tier");
  const policyEntries = of<Policy>("policy");
  const tierNames = [
    ...new Set([...tierEntries.map((t) => t.key["name"] ?? ""), ...policyEntries.map((p) => p.value.tier)]),
  ];
  const tierOrder = (name: string) => {
    const tier = tierEntries.find((t) => t.key["name"] === name);
    return [tier === undefined ? 1 : 0, tier?.value.order ?? Infinity, name] as const;
  };
  tierNames.sort((a, b) => {
    const [x, y] = [tierOrder(a), tierOrder(b)];
    return x[0] - y[0] || (x[1] === y[1] ? 0 : x[1] - y[1]) || (x[2] < y[2] ? -1 : 1);
  });
  const tieText = (key: Record<string, string>) => `${key["name"]}/${key["namespace"]}/${key["kind"]}`;

  type Table = "raw" | "mangle" | "filter" | "forward";
  function endpointChain(
    item: Item,
    profiles: readonly string[],
    direction: "ingress" | "egress",
    table: Table,
    hep: boolean,
  ): void {
    const tracked = table !== "raw";
    if (tracked && options.established) {
      mark.accept = true;
      return;
    }
    if (hep && table !== "forward") {
      const reply =
        table === "raw" &&
        FAILSAFE[direction === "ingress" ? "egress" : "ingress"].includes(`${packet.protocol}:${packet.sourcePort}`);
      if (FAILSAFE[direction].includes(`${packet.protocol}:${packet.destinationPort}`) || reply) {
        if (table === "filter") mark.accept = true; // raw and mangle accept without a mark, so later tables check again
        return;
      }
    }
    mark.accept = false;
    for (const name of tierNames) {
      const policies = policyEntries
        .filter(({ value }) => value.tier === name && value.types.includes(direction))
        .filter(({ value }) =>
          value.untracked
            ? table === "raw"
            : value.preDnat
              ? table === "mangle"
              : table === "filter" || (table === "forward" && value.applyOnForward),
        )
        .filter(({ key, value }) => !key["kind"]?.startsWith("Staged") && selects(value.selector.tree, item.labels))
        .sort((a, b) => {
          const [x, y] = [a.value.order ?? Infinity, b.value.order ?? Infinity];
          return x === y ? (tieText(a.key) < tieText(b.key) ? -1 : 1) : x - y;
        });
      if (policies.length === 0) continue;
      mark.pass = false;
      for (const { value } of policies) {
        if (mark.pass) continue;
        chain(direction === "ingress" ? value.inboundRules : value.outboundRules);
        if (mark.accept) return;
      }
      const action = tierEntries.find((t) => t.key["name"] === name)?.value.defaultAction;
      if ((table === "filter" || table === "forward") && !mark.pass && action !== "Pass") throw new Dropped();
    }
    if (table !== "filter") return;
    for (const name of profiles) {
      const rules = profileRules.get(name);
      if (rules === undefined) throw new Dropped();
      chain(direction === "ingress" ? rules.inboundRules : rules.outboundRules);
      if (mark.accept) return;
    }
    throw new Dropped();
  }

  const wepAt = (address: string) => weps.find((w) => w.item.addresses.includes(address));
  const nodes = entries
    .filter((e) => e.key.type === "resource" && e.key.kind === "Node")
    .map((e) => e.value) as unknown as { metadata: { name: string }; spec: { addresses: { address: string }[] } }[];
  const hostAt = (address: string) =>
    nodes.find((n) => n.spec.addresses.some((a) => a.address === address))?.metadata.name ??
    heps.find((h) => h.item.addresses.includes(address))?.host;
  const byId = (list: Hep[]) => list.sort((a, b) => (a.id < b.id ? -1 : 1))[0];
  const hepOf = (host: string, iface: string) =>
    byId(heps.filter((h) => h.host === host && h.value.name === iface)) ??
    byId(heps.filter((h) => h.host === host && h.value.name === "*"));
  const runHep = (host: string, iface: string, direction: "ingress" | "egress", table: Table) => {
    const own = hepOf(host, iface);
    const hasOwnChain =
      table !== "mangle" ||
      policyEntries.some(
        ({ value }) =>
          value.preDnat &&
          value.types.includes("ingress") &&
          own !== undefined &&
          selects(value.selector.tree, own.item.labels),
      );
    const hep = hasOwnChain ? own : hepOf(host, "*");
    if (hep === undefined || (table === "raw" && hep.value.name === "*")) return;
    if (table === "raw" && !policyEntries.some((p) => p.value.untracked)) return;
    if (table === "mangle" && !policyEntries.some((p) => p.value.preDnat)) return;
    endpointChain(hep.item, hep.value.profileIds, direction, table, true);
  };
  const runWep = (wep: Wep, direction: "ingress" | "egress") => {
    if (wep.value.state !== "active") throw new Dropped();
    if (
      direction === "egress" &&
      !options.established &&
      (packet.protocol === 4 || (packet.protocol === 17 && packet.destinationPort === 4789))
    )
      throw new Dropped();
    endpointChain(wep.item, wep.value.profileIds, direction, "filter", false);
  };

  const isDiscovery = packet.protocol === 58 && [130, 131, 132, 133, 135, 136].includes(packet.icmp?.type ?? -1);
  /** Walks the hooks of one host, for a packet that is forwarded, or sent or received by a process. */
  function throughHost(host: string, from: Wep | "uplink" | "process", to: Wep | "uplink" | "process"): void {
    mark.accept = false;
    mark.pass = false;
    const inInterface = from === "uplink" ? "eth0" : from === "process" ? "" : from.value.name;
    const outInterface = to === "uplink" ? "eth0" : to === "process" ? "" : to.value.name;
    if (from === "process") {
      if (to !== "uplink") return; // policy does not apply to a host's traffic to its own workloads
      runHep(host, "eth0", "egress", "raw");
      if (mark.accept) return;
      runHep(host, "eth0", "egress", "filter");
      return;
    }
    if (from !== "uplink" && to === "process" && isDiscovery) return; // exempt in mangle PREROUTING and in filter INPUT
    if (from === "uplink") runHep(host, inInterface, "ingress", "raw");
    if (!mark.accept && !options.established) runHep(host, inInterface, "ingress", "mangle");
    if (to === "process") {
      if (from !== "uplink") {
        runWep(from, "egress");
        if (!options.established) throw new Dropped(); // DefaultEndpointToHostAction is drop
        return;
      }
      if (!mark.accept) runHep(host, inInterface, "ingress", "filter");
      return;
    }
    if (!mark.accept) runHep(host, inInterface, "ingress", "forward");
    if (from !== "uplink") runWep(from, "egress");
    if (to !== "uplink") runWep(to, "ingress");
    runHep(host, outInterface, "egress", "forward");
  }

  const [source, destination] = [wepAt(packet.source), wepAt(packet.destination)];
  const [sourceHost, destinationHost] = [
    source?.host ?? hostAt(packet.source),
    destination?.host ?? hostAt(packet.destination),
  ];
  try {
    if (sourceHost !== undefined && sourceHost === destinationHost)
      throughHost(sourceHost, source ?? "process", destination ?? "process");
    else {
      if (sourceHost !== undefined) throughHost(sourceHost, source ?? "process", "uplink");
      if (destinationHost !== undefined) throughHost(destinationHost, "uplink", destination ?? "process");
    }
    return "allow";
  } catch (error) {
    if (error instanceof Dropped) return "deny";
    throw error;
  }
}

const FAILSAFE = {
  ingress: ["6:22", "17:68", "6:179", "6:2379", "6:2380", "6:5473", "6:6443", "6:6666", "6:6667"],
  egress: ["17:53", "17:67", "6:179", "6:2379", "6:2380", "6:5473", "6:6443", "6:6666", "6:6667"],
};
