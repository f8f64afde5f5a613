// Runs all generated cases on both dataplanes: compares real packets on all connections with the evaluator.
//   CONFORMANCE_DATAPLANE=nft|iptables   only one dataplane
//   CONFORMANCE_DATASTORE=kubernetes     with a real API server; all changes by kubectl
//   CONFORMANCE_ONLY=text                only cases whose name contains the text
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type AddressOf, allCases, type Case } from "./cases.ts";
import { ConformanceCluster } from "./cluster.ts";
import { familyCases } from "./family-cases.ts";
import { hostCases } from "./host-cases.ts";
import { serviceCases } from "./service-cases.ts";

const only = process.env["CONFORMANCE_ONLY"] ?? "";
const datastore = process.env["CONFORMANCE_DATASTORE"] === "kubernetes" ? "kubernetes" : "sqlite";
const dataplanes = (["nft", "iptables"] as const).filter((d) => (process.env["CONFORMANCE_DATAPLANE"] ?? d) === d);

const casesWith = (addressOf: AddressOf): readonly Case[] => [
  ...allCases(addressOf),
  ...familyCases(addressOf),
  ...hostCases(addressOf),
  ...(datastore === "kubernetes" ? serviceCases(addressOf) : []),
];

for (const dataplane of dataplanes)
  describe(`conformance on ${dataplane}, ${datastore}`, () => {
    let cluster: ConformanceCluster;
    beforeAll(async () => {
      cluster = await ConformanceCluster.start({
        name: `conf${datastore === "kubernetes" ? "k" : ""}${dataplane === "nft" ? "nft" : "ipt"}`,
        datastore,
        nodes: Number(process.env["CONFORMANCE_NODES"] ?? 3),
        dataplane,
        ipv6: true,
      });
    }, 240_000);
    afterAll(async () => {
      console.log(`conformance on ${dataplane}, ${datastore}: ${cluster?.probes ?? 0} packets tried`);
      await cluster?.[Symbol.asyncDispose]();
    }, 60_000);

    // Addresses are known only when the pods exist; number and names of the cases do not depend on them.
    const placeholder = casesWith((_, version) => (version === 6 ? "fd65::1" : "10.65.0.1"));
    for (const [i, { name }] of placeholder.entries()) {
      if (!name.includes(only)) continue;
      test(name, async () => {
        const { steps, ...scope } = casesWith((end, version) => cluster.addressOf(end, version))[i]!;
        try {
          for (const [n, step] of steps.entries()) {
            await cluster.applyStep(step);
            expect({ step: n, differ: await cluster.compare(5000, scope) }).toEqual({ step: n, differ: [] });
          }
        } finally {
          await cluster.undo(steps);
        }
      }, 60_000);
    }
  });
