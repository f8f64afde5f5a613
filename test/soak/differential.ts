// A million random packets through every renderer: evaluator = nftables = iptables (legacy) = iptables (nft). Each packet
// is sent and looked for in the kernel on each renderer, in the same states. One process per renderer; each says every ten
// seconds how far it is. What differs is printed whole and counted, and the others go on.
//
//   make soak
//   CALICO_FUZZ_SEED=7 CALICO_FUZZ_PACKETS=50000 make soak       the same states and packets again, so many per renderer
import { spawn } from "node:child_process";
import { type FuzzProgress, fuzz } from "../functional/dataplane/fuzz.ts";
import { type Backend, BACKENDS } from "../functional/dataplane/host.ts";

const SEED = Number(process.env["CALICO_FUZZ_SEED"] ?? Math.floor(Math.random() * 1e9));
const PACKETS = Number(process.env["CALICO_FUZZ_PACKETS"] ?? 1_000_000);
const PACKETS_PER_STATE = 800;
const SAY_EVERY_MS = 10_000;
/** Of one state more would be of the same cause; of others they may be of another. */
const SHOWN_PER_STATE = 2;
const SHOWN_STATES = 5;

const which = process.argv[2];
if (which === undefined) process.exitCode = await onAll();
else if (BACKENDS.some((backend) => backend === which)) process.exitCode = await onOne(which as Backend);
else {
  console.error(`soak: no renderer ${which}; there are ${BACKENDS.join(", ")}`);
  process.exitCode = 2;
}

async function onAll(): Promise<number> {
  if (process.getuid?.() !== 0) {
    console.error("soak: run as root: packets are sent in network namespaces");
    return 1;
  }
  console.log(`soak: CALICO_FUZZ_SEED=${SEED}, ${text(PACKETS)} packets on each of ${BACKENDS.join(", ")}`);
  const started = performance.now();
  const env = { ...process.env, CALICO_FUZZ_SEED: String(SEED) };
  const codes = await Promise.all(
    BACKENDS.map(
      (backend) =>
        new Promise<number>((resolve) => {
          const child = spawn(process.execPath, [import.meta.path, backend], { env, stdio: "inherit" });
          child.on("close", (code) => resolve(code ?? 1));
        }),
    ),
  );
  const failed = BACKENDS.filter((_, i) => codes[i] !== 0);
  const minutes = ((performance.now() - started) / 60_000).toFixed(1);
  console.log(`soak: done in ${minutes} min, CALICO_FUZZ_SEED=${SEED}`);
  if (failed.length > 0) console.log(`soak: failed on ${failed.join(", ")}`);
  console.log(`${BACKENDS.length - failed.length} passed, ${failed.length} failed`);
  return failed.length === 0 ? 0 : 1;
}

async function onOne(backend: Backend): Promise<number> {
  const started = performance.now();
  let saidAt = started;
  let seen = 0;
  let shown = 0;
  const say = (what: string, { packets, passed, states, mismatches, seconds }: FuzzProgress) => {
    const rate = packets / ((performance.now() - started) / 1000);
    const spent = Object.entries(seconds).map(([part, sum]) => `${part} ${sum.toFixed(0)} s`);
    console.log(
      `soak: ${backend}: ${what}${text(packets)} of ${text(PACKETS)} packets (${text(passed)} passed) in ${text(states)} states, ` +
        `${text(Math.round(rate))}/s, ${mismatches.length} mismatches (${spent.join(", ")})`,
    );
  };
  const result = await fuzz({
    backend,
    seed: SEED,
    packets: PACKETS,
    packetsPerState: PACKETS_PER_STATE,
    onState: (progress) => {
      const fresh = progress.mismatches.slice(seen);
      seen = progress.mismatches.length;
      if (fresh.length > 0 && shown++ < SHOWN_STATES) {
        for (const mismatch of fresh.slice(0, SHOWN_PER_STATE)) console.log(`soak: MISMATCH on ${mismatch}`);
        console.log(`soak: ${fresh.length} in this state`);
      }
      if (performance.now() - saidAt < SAY_EVERY_MS) return;
      saidAt = performance.now();
      say("", progress);
    },
  });
  say("ended: ", result);
  return result.mismatches.length === 0 ? 0 : 1;
}

function text(count: number): string {
  return count.toLocaleString("en-US");
}
