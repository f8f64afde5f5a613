// Measures the time from exec to exit of every role of the executable that prints only its version, compared with a process
// that does nothing and with two Go programs that do the same (`etcdctl`, a CNI plugin). Calico, which does not run here,
// took 70–100 ms and 105 MB. Prints medians of 21 runs, which alternate so that other load affects all of them.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { median } from "./support/percentile.ts";

const BUDGET_MS = 15;
const ROUNDS = 21;
const dist = join(import.meta.dir, "../dist");
const roles: readonly {
  readonly name: string;
  readonly args: readonly string[];
  readonly env?: Record<string, string>;
}[] = [
  { name: "calico", args: ["version"] },
  { name: "calicoctl", args: ["version", "--client"] },
  { name: "calico-node", args: ["-v"] },
  { name: "calico-felix", args: ["--version"] },
  { name: "calico-typha", args: ["--version"] },
  { name: "calico-kube-controllers", args: ["--version"] },
  { name: "calico-ipam", args: ["-v"], env: { CNI_COMMAND: "VERSION" } },
  { name: "check-status", args: ["-v"] },
  { name: "calico-install", args: ["-v"] },
];

const PEER = "etcdctl version";
const peers: typeof roles = [
  { name: "/bin/true", args: [] },
  { name: PEER, args: ["version"] },
  { name: "/usr/lib/cni/bridge", args: [], env: { CNI_COMMAND: "VERSION" } },
];

if (!existsSync(join(dist, "calico"))) {
  console.error("start: dist/ is not built; run `make build`");
  process.exit(1);
}
const times = new Map<string, number[]>();
let memoryKb = 0;
for (let round = 0; round < ROUNDS; round++) {
  for (const { name, args, env } of peers) measure(name, name.split(" ")[0] ?? "", args, env);
  for (const role of roles)
    memoryKb = Math.max(memoryKb, measure(role.name, join(dist, role.name), role.args, role.env));
}
console.log(`start of each role, median of ${ROUNDS} (budget ${BUDGET_MS} ms)`);
let late = 0;
const peerMs = median(times.get(PEER) ?? []);
for (const [name, list] of times) {
  const ms = median(list);
  const isOurs = roles.some((role) => role.name === name);
  if (isOurs && ms > BUDGET_MS) late++;
  const ratio = isOurs ? `   ${PEER} takes ${(peerMs / ms).toFixed(1)} ×${ms > BUDGET_MS ? "  over budget" : ""}` : "";
  console.log(`  ${name.padEnd(26)} ${ms.toFixed(1).padStart(6)} ms${ratio}`);
}
console.log(`  maximum resident set       ${(memoryKb / 1024).toFixed(0).padStart(6)} MB`);
process.exitCode = late === 0 ? 0 : 1;

function measure(name: string, path: string, args: readonly string[], env: Record<string, string> = {}): number {
  const started = performance.now();
  const { resourceUsage } = Bun.spawnSync([path, ...args], {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
  });
  times.set(name, [...(times.get(name) ?? []), performance.now() - started]);
  return resourceUsage.maxRSS / 1024;
}
