import { expect, test } from "bun:test";
import fc from "fast-check";
import type { IpAddress } from "../lib/ip/ip.ts";
import { API_VERSION, type KeyValue, type KindName, type Resource } from "../model/index.ts";
import { entriesFromResources } from "./from-resources.ts";
import { evaluatePacket } from "./evaluate-packet.ts";
import type { Packet } from "./packet.ts";
import { PolicyState } from "./state.ts";
import { arbitraryCluster, arbitraryPacket, ALL_ADDRESSES } from "./testing/arbitrary-cluster.ts";
import { walkNetfilter } from "./testing/netfilter-walk.ts";

const TIMEOUT_MS = 120_000 * Number(process.env["CALICO_PROPERTY_FACTOR"] ?? 1);

const arbitraryPackets = fc.array(arbitraryPacket, { minLength: 1, maxLength: 6 });
const agreement = fc.property(arbitraryCluster, arbitraryPackets, fc.boolean(), expectAgreement);
test(
  "the evaluator agrees with a naive walk through the kernel's hooks",
  () => fc.assert(agreement, { numRuns: 1500 }),
  TIMEOUT_MS,
);

test("a pre-DNAT deny does not affect neighbour discovery with the host; the walk through the hooks agrees", () => {
  const make = (kind: KindName, name: string, spec: object, namespace?: string): Resource => ({
    apiVersion: API_VERSION,
    kind,
    metadata: namespace === undefined ? { name } : { name, namespace },
    spec,
  });
  const resources = [
    make("Node", "h2", { addresses: [{ address: "fd00:f::2" }] }),
    make(
      "WorkloadEndpoint",
      "h2-k8s-pod-eth0",
      {
        node: "h2",
        orchestrator: "k8s",
        pod: "pod",
        endpoint: "eth0",
        ipNetworks: ["fd00::1/128"],
        interfaceName: "cali0",
      },
      "ns",
    ),
    make("HostEndpoint", "all", { node: "h2", interfaceName: "*" }),
    make("GlobalNetworkPolicy", "p0", {
      selector: "all()",
      types: ["Ingress"],
      ingress: [{ action: "Deny" }],
      preDNAT: true,
      applyOnForward: true,
    }),
  ];
  const entries = entriesFromResources(resources, (resource, reason) => {
    throw new Error(`${resource.metadata.name}: ${reason}`);
  });
  const packet = (type: number, destination: string): Packet => ({
    source: "fd00::1" as IpAddress,
    destination: destination as IpAddress,
    protocol: 58,
    icmp: { type, code: 0 },
  });
  const cases = [
    { packet: packet(135, "fd00:f::2"), action: "allow" },
    { packet: packet(128, "fd00:f::2"), action: "deny" },
    { packet: packet(135, "fd00:9::9"), action: "deny" }, // forwarded, not to the host
  ] as const;
  const state = new PolicyState(entries);
  for (const { packet, action } of cases) expect(evaluatePacket(state, { packet }).action).toBe(action);
  expectAgreement(
    entries,
    cases.map(({ packet }) => packet),
    false,
  );
});

test("a verdict does not depend on the order of the entries", () => {
  fc.assert(
    fc.property(arbitraryCluster, arbitraryPacket, (entries, packet) => {
      expect(evaluatePacket(new PolicyState(entries.toReversed()), { packet })).toEqual(
        evaluatePacket(new PolicyState(entries), { packet }),
      );
    }),
    { numRuns: 300 },
  );
});

function expectAgreement(entries: readonly KeyValue[], packets: readonly Packet[], established: boolean): void {
  const state = new PolicyState(entries);
  for (const packet of packets) {
    const verdict = evaluatePacket(state, { packet, established });
    const naive = walkNetfilter(entries, ALL_ADDRESSES, packet, { established });
    expect({
      action: verdict.action,
      packet,
      checkpoints: naive === verdict.action ? [] : verdict.checkpoints,
    }).toEqual({ action: naive, packet, checkpoints: [] });
  }
}
