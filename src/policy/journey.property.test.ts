import { expect, test } from "bun:test";
import fc from "fast-check";
import { judge } from "./journey.ts";
import { PolicyState } from "./state.ts";
import { arbitraryCluster, arbitraryPacket, UNIVERSE } from "./testing/arbitrary.ts";
import { netfilter } from "./testing/netfilter.ts";

const runs = Number(process.env["CALICO_PROPERTY_RUNS"] ?? 1500);

test("the evaluator agrees with a naive walk through the kernel's hooks", () => {
  fc.assert(
    fc.property(
      arbitraryCluster,
      fc.array(arbitraryPacket, { minLength: 1, maxLength: 6 }),
      fc.boolean(),
      (entries, packets, established) => {
        const state = new PolicyState(entries);
        for (const packet of packets) {
          const verdict = judge(state, { packet, established });
          const naive = netfilter(entries, UNIVERSE, packet, { established });
          expect({
            action: verdict.action,
            packet,
            checkpoints: naive === verdict.action ? [] : verdict.checkpoints,
          }).toEqual({ action: naive, packet, checkpoints: [] });
        }
      },
    ),
    { numRuns: runs },
  );
}, 120_000);

test("a verdict does not depend on the order of the entries", () => {
  fc.assert(
    fc.property(arbitraryCluster, arbitraryPacket, (entries, packet) => {
      expect(judge(new PolicyState(entries.toReversed()), { packet })).toEqual(
        judge(new PolicyState(entries), { packet }),
      );
    }),
    { numRuns: 300 },
  );
});
