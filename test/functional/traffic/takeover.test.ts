// Replaces Calico on a node by calico-ts, and back, while traffic runs: allowed connections lose no packets, and denied ones
// stay denied.
import { expect, test } from "bun:test";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { haveRecordings } from "../dataplane/recordings.ts";
import type { Backend } from "../dataplane/host.ts";
import { TrafficNode } from "./node.ts";
import { hasIpv6, loadCalicoState, recordedKeys, writeCalicoRules } from "./recorded-state.ts";
import { byIpv6, faults, type FlowResult, type Place, Traffic } from "./traffic.ts";

interface Case {
  readonly state: string;
  readonly original: Backend;
  readonly ours: Backend;
}
const STATES = ["match-ports", "match-namespaces", "match-named-ports", "tiers-pass-and-drop"];
const CASES: readonly Case[] = [
  ...STATES.map((state): Case => ({ state, original: "nftables", ours: "nftables" })),
  ...STATES.map((state): Case => ({ state, original: "legacy", ours: "legacy" })),
  { state: "match-namespaces", original: "nft", ours: "nft" },
  { state: "match-ports", original: "legacy", ours: "nftables" },
  { state: "match-ports", original: "nft", ours: "nftables" },
  { state: "match-ports", original: "nftables", ours: "legacy" },
  // The node and its policies use both IP versions.
  { state: "match-selectors", original: "nftables", ours: "nftables" },
  { state: "match-selectors", original: "legacy", ours: "legacy" },
  { state: "match-selectors", original: "nft", ours: "nft" },
  { state: "match-named-ports", original: "nft", ours: "nft" },
  { state: "match-named-ports", original: "legacy", ours: "nftables" },
  { state: "match-named-ports", original: "nftables", ours: "nft" },
];
const PORTS = [80, 53, 1500, 9999];

for (const { state, original, ours } of CASES)
  test.skipIf(!haveRecordings)(
    `${state}: from Calico with ${original} to calico-ts with ${ours} and back`,
    async () => {
      await using node = new TrafficNode();
      using traffic = new Traffic();
      const keys = recordedKeys(state);
      const pods = podsOf(keys).map((pod) => node.addPod(pod));
      expect(pods.length).toBeGreaterThan(0);
      loadCalicoState(node.space, state, original);
      await node.startDatastore(keys);

      knock(traffic, [...pods, node.outside], pods);
      const dual = pods.filter(({ address6 }) => address6 !== undefined).map(byIpv6);
      if (hasIpv6(state)) knock(traffic, [...dual, byIpv6(node.outside)], dual);
      traffic.start();
      await new Promise((resolve) => setTimeout(resolve, 500));
      const before = traffic.results();
      const bySix = ({ name }: FlowResult) => name.includes("6 → ");
      for (const family of [before.filter((flow) => !bySix(flow)), before.filter(bySix)]) {
        if (family.length === 0) continue;
        const passing = family.filter(({ delivered }) => delivered > 0).length;
        expect(passing).toBeGreaterThan(0);
        expect(passing).toBeLessThan(family.length);
      }
      expect(before.some(bySix)).toBe(hasIpv6(state));

      node.startAgent(ours);
      await node.untilReady();
      await node.untilOnly(ours);
      await node.endAgent("SIGTERM");
      // The start of Calico: one transaction per table, on top of the existing rules.
      writeCalicoRules(node.space, state, original);
      await new Promise((resolve) => setTimeout(resolve, 300));
      const { lost, passed, checked } = faults(before, await traffic.finish());
      console.log(`${state}, ${original} → ${ours} → ${original}: ${checked} packets on ${before.length} flows`);
      expect({ lost, passed }).toEqual({ lost: [], passed: [] });
    },
    120_000,
  );

/** Adds flows from every place to every port of every workload, with one long connection per port. */
function knock(traffic: Traffic, from: readonly Place[], to: readonly Place[]): void {
  for (const server of to)
    for (const port of PORTS) {
      const clients = from.filter((client) => client !== server);
      for (const [i, client] of clients.entries())
        traffic.add(client, server, port, i === 0 ? ["answered", "one-way", "tcp"] : ["answered", "one-way"]);
    }
}

function podsOf(keys: Readonly<Record<string, unknown>>) {
  return Object.values(keys).flatMap((value) => {
    const { kind, spec } = value as {
      kind?: string;
      spec?: { node?: string; pod?: string; interfaceName?: string; ipNetworks?: readonly string[] };
    };
    if (kind !== "WorkloadEndpoint" || spec?.node !== "node-a") return [];
    const [address, address6] = [false, true].map(
      (isV6) => spec.ipNetworks?.find((net) => net.includes(":") === isV6)?.split("/")[0] as IpAddress | undefined,
    );
    if (address === undefined || spec.interfaceName === undefined) return [];
    const pod = { name: spec.pod ?? "", interfaceName: spec.interfaceName, address };
    return [address6 === undefined ? pod : { ...pod, address6 }];
  });
}
