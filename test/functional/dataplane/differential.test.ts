// Random clusters, random packets: what the kernel does with each must be what the evaluator says, on every renderer.
// The dataplane goes from one cluster to the next by differences, as it would in life.
//
//   CALICO_FUZZ_SEED=7 bun test test/functional/dataplane/differential.test.ts     the same clusters and packets again
//   CALICO_FUZZ_PACKETS=1000000 …                                                  so many (`make soak`)
import { expect, test } from "bun:test";
import fc from "fast-check";
import { CalculationGraph, type GraphUpdate } from "../../../src/calc/index.ts";
import type { IpAddress } from "../../../src/lib/ip.ts";
import type { KeyValue, Policy, Rule } from "../../../src/model/index.ts";
import { describePacket, judge, type Packet, PolicyState } from "../../../src/policy/index.ts";
import { arbitraryCluster, arbitraryPacket } from "../../../src/policy/testing/arbitrary.ts";
import type { Backend } from "./host.ts";
import { WorldDataplane } from "./world-dataplane.ts";

const SEED = Number(process.env["CALICO_FUZZ_SEED"] ?? Math.floor(Math.random() * 1e9));
/** Over all renderers; every change must pass 10,000. */
const PACKETS = Number(process.env["CALICO_FUZZ_PACKETS"] ?? 12_000);
const PACKETS_PER_STATE = 700;
/** Clusters that are made at once. */
const CHUNK = 20;

const PODS = [
  { name: "pod0", interfaceName: "cali0", addresses: ["10.0.0.1", "fd00::1"] as IpAddress[] },
  { name: "pod1", interfaceName: "cali1", addresses: ["10.0.0.2", "fd00::2"] as IpAddress[] },
  { name: "pod2", interfaceName: "cali2", addresses: ["10.0.0.3", "fd00::3"] as IpAddress[] },
  { name: "pod3", interfaceName: "cali3", addresses: ["10.0.1.4", "fd00:1::4"] as IpAddress[] },
];
const HOST = ["192.168.0.1", "fd00:f::1"] as IpAddress[];

/** As validation would have it: ports only of protocols that have them, ICMP matches only of ICMP. */
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

/** All workloads live on the host under test, and only it has host endpoints: every checkpoint is one of its. */
function onOneHost(entries: readonly KeyValue[]): KeyValue[] {
  return entries.flatMap((entry): KeyValue[] => {
    if (entry.key.type === "workloadEndpoint")
      return [
        { key: { ...entry.key, host: "h1" }, value: { ...(entry.value as object), state: "active" } } as KeyValue,
      ];
    if (entry.key.type === "hostEndpoint" && entry.key.host !== "h1") return [];
    if (entry.key.type === "policy" || entry.key.type === "profileRules") {
      const { inboundRules, outboundRules, ...rest } = entry.value as Policy;
      const value = { ...rest, inboundRules: inboundRules.map(valid), outboundRules: outboundRules.map(valid) };
      return [{ key: entry.key, value } as KeyValue];
    }
    return [entry];
  });
}

const keyText = (entry: { readonly key: unknown }) => JSON.stringify(entry.key);
function transition(from: readonly KeyValue[], to: readonly KeyValue[]): GraphUpdate[] {
  const after = new Map(to.map((entry) => [keyText(entry), entry]));
  const before = new Map(from.map((entry) => [keyText(entry), entry]));
  return [
    ...[...after]
      .filter(([key, entry]) => !Bun.deepEquals(before.get(key)?.value, entry.value, true))
      .map(([, e]) => e),
    ...[...before].filter(([key]) => !after.has(key)).map(([, e]) => ({ ...e, value: undefined })),
  ] as GraphUpdate[];
}

/** Where an address is in this cluster. */
function placeOf(entries: readonly KeyValue[], address: IpAddress): string {
  if (HOST.includes(address)) return "host";
  const pod = PODS.find((p) => p.addresses.includes(address));
  const isThere = entries.some(
    ({ key }) => key.type === "workloadEndpoint" && key.workload === `ns/pod-${pod?.name.slice(3)}`,
  );
  return pod !== undefined && isThere ? pod.name : "outside";
}

/** Packets the kernel can judge one by one: each its own connection, of kinds that connection tracking knows. */
function usable(entries: readonly KeyValue[], packets: readonly Packet[]) {
  const seen = new Set<string>();
  return packets.flatMap((packet) => {
    const from = placeOf(entries, packet.source);
    const to = placeOf(entries, packet.destination);
    if (from === to) return [];
    if (packet.icmp !== undefined && packet.icmp.type !== (packet.protocol === 1 ? 8 : 128)) return [];
    const ends = [
      `${packet.source} ${packet.sourcePort ?? ""}`,
      `${packet.destination} ${packet.destinationPort ?? ""}`,
    ];
    const connection = [packet.protocol, ...ends.sort()].join(" ");
    if (seen.has(connection)) return [];
    seen.add(connection);
    return [{ packet, from, to }];
  });
}

/** Clusters without end, the same ones for the same seed. */
function* clusters(): Iterable<readonly KeyValue[]> {
  for (let chunk = 0; ; chunk++)
    yield* fc.sample(arbitraryCluster, { seed: SEED + chunk, numRuns: CHUNK }).map(onOneHost);
}

async function run(backend: Backend, wanted: number): Promise<number> {
  await using dataplane = new WorldDataplane({ backend, pods: PODS, host: HOST, hostname: "h1" });
  const { world } = dataplane;
  const graph = new CalculationGraph(
    {
      host: "h1",
      withoutOverlaps: backend === "nftables",
      routes: "none",
      vteps: false,
      ambientMesh: false,
      ownsNoEncapRoutes: false,
      toRawConfig: () => ({}),
    },
    { onMessage: (message) => dataplane.tell(message) },
  );
  let count = 0;
  let before: readonly KeyValue[] = [];
  let index = -1;
  for (const entries of clusters()) {
    if (count >= wanted) break;
    index++;
    await dataplane.settle(() => {
      for (const update of transition(before, entries)) graph.update(update);
      if (index === 0) graph.setInSync();
      graph.flush();
    });
    before = entries;
    const state = new PolicyState(entries);
    const packets = fc.sample(arbitraryPacket, { seed: SEED + index, numRuns: PACKETS_PER_STATE });
    const cells = usable(entries, packets);
    world.forgetConnections();
    let arrived = await world.send(cells);
    const differs = () =>
      cells.flatMap((cell, i) => {
        const verdict = judge(state, { packet: cell.packet });
        return (verdict.action === "allow") === arrived[i] ? [] : [{ cell, verdict, arrived: arrived[i] }];
      });
    if (differs().length > 0) {
      // Once more, in case the machine was too busy to deliver in time.
      world.forgetConnections();
      arrived = await world.send(cells);
    }
    const [first] = differs();
    if (first !== undefined)
      throw new Error(
        [
          `${backend}, seed ${SEED}, cluster ${index}: ${describePacket(first.cell.packet)} from ${first.cell.from}`,
          `kernel: ${first.arrived === true ? "arrived" : "did not arrive"}; evaluator: ${first.verdict.action}, ${first.verdict.because}`,
          JSON.stringify(first.verdict.checkpoints, undefined, 1),
          ...entries.map((entry) => JSON.stringify(entry)),
          ...(process.env["CALICO_FUZZ_RULES"] === undefined ? [] : [world.host.run("nft", ["list", "ruleset"])]),
        ].join("\n"),
      );
    count += cells.length;
  }
  return count;
}

for (const [backend, share] of [
  ["nftables", 0.5],
  ["legacy", 0.25],
  ["nft", 0.25],
] as const)
  test(`${backend}: the kernel does what the evaluator says`, async () => {
    const count = await run(backend, PACKETS * share);
    console.log(`${backend}: ${count} packets, CALICO_FUZZ_SEED=${SEED}`);
    expect(count).toBeGreaterThanOrEqual(PACKETS * share);
  }, 14_400_000);
