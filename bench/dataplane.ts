// Measures programming 200 local endpoints with 1,000 policies into an empty kernel, one policy edit, adding one member to a
// set of 100,000, and a restart without changes. Compares nftables and iptables, CPU and wall time, in a network namespace.
import { spawnSync } from "node:child_process";
import { cleanRules, cluster, kernels, openRules, POLICIES, policy } from "./support/rules.ts";

if (process.env["CALICO_BENCH_INSIDE"] === undefined) {
  const { status } = spawnSync("unshare", ["--net", process.execPath, import.meta.filename, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { ...process.env, CALICO_BENCH_INSIDE: "1" },
  });
  process.exit(status ?? 1);
}

const size = { endpoints: 200, largeSet: true };

console.log("200 local endpoints, 1,000 policies, one set of 100,000: ms wall (ms CPU of this process)");
const only = process.argv[2];
for (const [name, kernel] of Object.entries(kernels)) {
  if (only !== undefined && only !== name) continue;
  const first = openRules(kernel());
  const start = await measure(async () => {
    for (const message of cluster(size)) first.send(message);
    await first.apply();
  });
  const edits: Cost[] = [];
  for (let i = 0; i < 20; i++)
    edits.push(
      await measure(async () => {
        first.send(policy((i * 37) % POLICIES, 10_000 + i));
        await first.apply();
      }),
    );
  const rewrites: Cost[] = [];
  for (let i = 0; i < 20; i++)
    rewrites.push(
      await measure(async () => {
        first.send(policy((i * 37) % POLICIES, 10_000 + i, i % 2 === 0));
        await first.apply();
      }),
    );
  const members: Cost[] = [];
  for (let i = 0; i < 20; i++)
    members.push(
      await measure(async () => {
        first.send({ type: "ipSetDeltaUpdate", id: "s:large", added: [`10.99.0.${i}/32`], removed: [] });
        await first.apply();
      }),
    );
  const again = openRules(kernel());
  const restart = await measure(async () => {
    for (const message of cluster(size)) again.send(message);
    for (let i = 0; i < 20; i++) again.send(policy((i * 37) % POLICIES, 10_000 + i, i % 2 === 0));
    again.send({
      type: "ipSetDeltaUpdate",
      id: "s:large",
      added: Array.from({ length: 20 }, (_, i) => `10.99.0.${i}/32`),
      removed: [],
    });
    await again.apply();
  });
  console.log(
    `  ${name.padEnd(16)} from nothing ${show(start)}   one port ${show(median(edits))}   one rule ${show(median(rewrites))}   one member ${show(median(members))}   restart ${show(restart)}`,
  );
  cleanRules();
}

interface Cost {
  readonly wall: number;
  readonly cpu: number;
}
async function measure(body: () => Promise<void>): Promise<Cost> {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await body();
  const used = process.cpuUsage(cpu);
  return { wall: performance.now() - start, cpu: (used.user + used.system) / 1000 };
}
function median(costs: readonly Cost[]): Cost {
  return costs.toSorted((a, b) => a.wall - b.wall)[costs.length >> 1] ?? { wall: 0, cpu: 0 };
}
function show({ wall, cpu }: Cost): string {
  const text = (ms: number) => ms.toFixed(ms < 1 ? 2 : ms < 100 ? 1 : 0);
  return `${text(wall)} (${text(cpu)})`;
}
