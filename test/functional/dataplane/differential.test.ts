// Compares the kernel's verdict on random packets in random clusters with that of the policy evaluator. Every renderer gets the
// same clusters and packets. `make soak` runs this test with a million packets.
//
//   CALICO_FUZZ_SEED=7 bun test test/functional/dataplane/differential.test.ts     the same clusters and packets again
import { expect, test } from "bun:test";
import { fuzz } from "./fuzz.ts";
import { BACKENDS } from "./host.ts";

const SEED = Number(process.env["CALICO_FUZZ_SEED"] ?? Math.floor(Math.random() * 1e9));
/** Number of packets per renderer. */
const PACKETS = 10_000;
const PACKETS_PER_STATE = 800;

for (const backend of BACKENDS)
  test(`${backend}: the kernel's verdicts equal those of the evaluator`, async () => {
    const { packets, passed, states, mismatches } = await fuzz({
      backend,
      seed: SEED,
      packets: PACKETS,
      packetsPerState: PACKETS_PER_STATE,
    });
    console.log(`${backend}: ${packets} packets in ${states} states, ${passed} passed, CALICO_FUZZ_SEED=${SEED}`);
    expect(mismatches[0]).toBeUndefined();
    expect(packets).toBeGreaterThanOrEqual(PACKETS);
  }, 600_000);
