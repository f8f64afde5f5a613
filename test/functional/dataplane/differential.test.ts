// Random clusters, random packets: what the kernel does with each must be what the evaluator says, on every renderer:
// the same clusters and packets on all of them. `make soak` does it with a million.
//
//   CALICO_FUZZ_SEED=7 bun test test/functional/dataplane/differential.test.ts     the same clusters and packets again
import { expect, test } from "bun:test";
import { fuzz } from "./fuzz.ts";
import { BACKENDS } from "./host.ts";

const SEED = Number(process.env["CALICO_FUZZ_SEED"] ?? Math.floor(Math.random() * 1e9));
/** On each renderer. */
const PACKETS = 10_000;
const PACKETS_PER_STATE = 800;

for (const backend of BACKENDS)
  test(`${backend}: the kernel does what the evaluator says`, async () => {
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
