// Generates random clusters on one host, and random packets that match their rules. The same seed gives the same results.
import fc from "fast-check";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import type { KeyValue, Policy, Rule } from "../../../src/model/index.ts";
import type { Packet } from "../../../src/policy/index.ts";
import { clusterWith, PORTS, ALL_ADDRESSES } from "../../../src/policy/testing/arbitrary-cluster.ts";
import type { Sent } from "./packet-world.ts";

export const HOSTNAME = "h1";
export const HOST = ["192.168.0.1", "fd00:f::1"] as IpAddress[];
export const PODS = [
  { name: "pod0", interfaceName: "cali0", addresses: ["10.0.0.1", "fd00::1"] as IpAddress[] },
  { name: "pod1", interfaceName: "cali1", addresses: ["10.0.0.2", "fd00::2"] as IpAddress[] },
  { name: "pod2", interfaceName: "cali2", addresses: ["10.0.0.3", "fd00::3"] as IpAddress[] },
  { name: "pod3", interfaceName: "cali3", addresses: ["10.0.1.4", "fd00:1::4"] as IpAddress[] },
];

/** Most clusters are small, so that single rules decide; in the larger ones, more rules apply to a packet. */
const SIZES = [clusterWith(5, 3), clusterWith(3, 2), clusterWith(5, 3), clusterWith(12, 4), clusterWith(25, 5)];
/** Number of clusters that are generated together. */
const CHUNK = 5;
/** One of three clusters keeps most resources of the previous one, like a small change in a real cluster. */
const STEP_EVERY = 3;
const KEPT = 0.8;

export type Random = () => number;

/** Mulberry32, a small and fast generator with the same sequence on all machines. */
export function randomFrom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Generates an endless sequence of clusters. */
export function* clusters(seed: number): Generator<readonly KeyValue[]> {
  const random = randomFrom(seed);
  let last: readonly KeyValue[] = [];
  let count = 0;
  for (let chunk = 0; ; chunk++)
    for (const [i, size] of SIZES.entries())
      for (const fresh of fc.sample(size, { seed: seed + chunk * SIZES.length + i, numRuns: CHUNK })) {
        last = count++ % STEP_EVERY === 2 ? stepTowards(last, onOneHost(fresh), random) : onOneHost(fresh);
        yield last;
      }
}

const keyText = (entry: { readonly key: unknown }) => JSON.stringify(entry.key);

/** Replaces some resources by those of `to`, and keeps the others. */
function stepTowards(from: readonly KeyValue[], to: readonly KeyValue[], random: Random): KeyValue[] {
  const ends = [from, to].map((entries) => new Map(entries.map((entry) => [keyText(entry), entry])));
  const keys = new Set(ends.flatMap((end) => [...end.keys()]));
  return [...keys].flatMap((key) => ends[random() < KEPT ? 0 : 1]?.get(key) ?? []);
}

/** All workloads and host endpoints are on the host under test, so that all policy is evaluated there. */
function onOneHost(entries: readonly KeyValue[]): KeyValue[] {
  return entries.flatMap((entry): KeyValue[] => {
    if (entry.key.type === "workloadEndpoint")
      return [
        { key: { ...entry.key, host: HOSTNAME }, value: { ...(entry.value as object), state: "active" } } as KeyValue,
      ];
    if (entry.key.type === "hostEndpoint" && entry.key.host !== HOSTNAME) return [];
    if (entry.key.type === "policy" || entry.key.type === "profileRules") {
      const { inboundRules, outboundRules, ...rest } = entry.value as Policy;
      const value = { ...rest, inboundRules: inboundRules.map(valid), outboundRules: outboundRules.map(valid) };
      return [{ key: entry.key, value } as KeyValue];
    }
    return [entry];
  });
}

/** Makes a rule valid: ports only for protocols that have them, ICMP matches only for ICMP. */
function valid(rule: Rule): Rule {
  const hasPorts = ["tcp", "udp", 6, 17].includes(rule.protocol ?? "");
  const hasIcmp = ["icmp", "icmpv6"].includes(String(rule.protocol));
  const { icmp, notIcmp, ...rest } = rule;
  const side = ({ ports, notPorts, ...others }: Rule["source"]): Rule["source"] =>
    hasPorts
      ? { ...others, ...(ports === undefined ? {} : { ports }), ...(notPorts === undefined ? {} : { notPorts }) }
      : others;
  return {
    ...rest,
    ...(hasIcmp && icmp !== undefined ? { icmp } : {}),
    ...(hasIcmp && notIcmp !== undefined ? { notIcmp } : {}),
    source: side(rule.source),
    destination: side(rule.destination),
  };
}

/** Returns the place of each address in this cluster. */
function placesOf(entries: readonly KeyValue[]): Map<IpAddress, string> {
  const workloads = new Set(entries.flatMap(({ key }) => (key.type === "workloadEndpoint" ? [key.workload] : [])));
  const places = new Map<IpAddress, string>(ALL_ADDRESSES.map((address) => [address, "outside"]));
  for (const pod of PODS)
    if (workloads.has(`ns/pod-${pod.name.slice(3)}`))
      for (const address of pod.addresses) places.set(address, pod.name);
  for (const address of HOST) places.set(address, "host");
  return places;
}

const [V4, V6] = [4, 6].map((version) => ALL_ADDRESSES.filter((address) => address.includes(":") === (version === 6)));
/** Ports at the boundaries of ranges. */
const EDGES = PORTS.flatMap((port) => [port - 1, port + 1]);

/** Returns packets that the kernel judges individually: each is a new connection, of a protocol that conntrack supports. */
export function packetsFor(entries: readonly KeyValue[], count: number, random: Random): Sent[] {
  const places = placesOf(entries);
  const seen = new Set<string>();
  const sent: Sent[] = [];
  // A cluster with few endpoints may have fewer different packets than requested.
  for (let draws = 0; sent.length < count && draws < count * 3; draws++) {
    const packet = drawPacket(random);
    const from = places.get(packet.source) ?? "outside";
    const to = places.get(packet.destination) ?? "outside";
    if (from === to) continue;
    const ends = [
      `${packet.source} ${packet.sourcePort ?? ""}`,
      `${packet.destination} ${packet.destinationPort ?? ""}`,
    ];
    const connection = [packet.protocol, packet.icmp?.code ?? "", ...ends.sort()].join(" ");
    if (seen.has(connection)) continue;
    seen.add(connection);
    sent.push({ packet, from, to });
  }
  return sent;
}

function drawPacket(random: Random): Packet {
  const pick = <T>(list: readonly T[] | undefined): T => list?.[Math.floor(random() * list.length)] as T;
  const isV6 = random() < 1 / 3;
  const addresses = isV6 ? V6 : V4;
  const ends = { source: pick(addresses), destination: pick(addresses) };
  const kind = random();
  if (kind < 0.04) return { ...ends, protocol: 4 };
  if (kind < 0.1)
    return { ...ends, protocol: isV6 ? 58 : 1, icmp: { type: isV6 ? 128 : 8, code: random() < 0.8 ? 0 : 1 } };
  const port = () => pick(random() < 0.8 ? PORTS : EDGES);
  const anyPort = 1 + Math.floor(random() * 65_535);
  return {
    ...ends,
    protocol: random() < 0.5 ? 6 : 17,
    sourcePort: random() < 0.5 ? port() : anyPort,
    destinationPort: random() < 0.95 ? port() : anyPort,
  };
}
