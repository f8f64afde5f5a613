// Measures network sets with up to 200,000 prefixes in a real agent: the time until the kernel has them, the longest time
// that the event loop is blocked, the slowest answer of the liveness probe, and the CPU time of changes of one member, in the
// agent (user) and in the kernel (system).
//
//   bun bench/large-sets.ts [nftables|iptables] [SIZE …]
import { feedPrefixes, type Measured, TimedAgent, type TimedMode } from "../test/support/timed-agent.ts";

const CHANGES = 20;
const words = process.argv.slice(2);
const modes = (["nftables", "iptables"] as const).filter((mode) => words.length === 0 || words.includes(mode));
const sizes = words.map(Number).filter((size) => size > 0);

for (const mode of modes)
  for (const size of sizes.length > 0 ? sizes : [2000, 15_000, 50_000, 200_000]) await run(mode, size);

async function run(mode: TimedMode, size: number): Promise<void> {
  for (const lengths of ["mixed", "hosts"] as const) {
    await using agent = await TimedAgent.start(mode);
    const prefixes = feedPrefixes(size, lengths);
    console.log(`${mode}, ${size} ${lengths === "hosts" ? "addresses" : "prefixes, 70 % of them single addresses"}`);
    print("load", await agent.measure(size, () => agent.putFeed("feed", prefixes)));
    const changes: Measured[] = [];
    // These are members of another network set that the same rule selects.
    const others: string[] = [];
    for (let i = 1; i <= CHANGES; i++) {
      others.push(`198.51.100.${i}/32`);
      changes.push(await agent.measure(size + i, () => agent.putFeed("small", others)));
    }
    print("one member more", average(changes));
    const longer = [...prefixes, "203.0.113.7/32"];
    print(
      "one more in the large NetworkSet",
      await agent.measure(size + CHANGES + 1, () => agent.putFeed("feed", longer)),
    );
  }
  if (mode === "iptables") return;
  await using agent = await TimedAgent.start(mode);
  const notNets = feedPrefixes(size);
  print("a rule with as many prefixes", await agent.measure(0, () => agent.putPolicy("rule", { nets: notNets })));
}

function average(all: readonly Measured[]): Measured {
  const mean = (of: (each: Measured) => number) => all.reduce((sum, each) => sum + of(each), 0) / all.length;
  return {
    wallMs: mean((each) => each.wallMs),
    userMs: mean((each) => each.userMs),
    systemMs: mean((each) => each.systemMs),
    longestGapMs: Math.max(...all.map((each) => each.longestGapMs)),
    longestRunMs: Math.max(...all.map((each) => each.longestRunMs)),
    slowestProbeMs: Math.max(...all.map((each) => each.slowestProbeMs)),
  };
}

function print(what: string, { wallMs, userMs, systemMs, longestGapMs, longestRunMs, slowestProbeMs }: Measured): void {
  const ms = (value: number) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
  const cpu = `our CPU ${ms(userMs)}, kernel ${ms(systemMs)}`;
  console.log(
    `  ${what.padEnd(34)} ${ms(wallMs).padStart(8)}; ${cpu}; longest block ${ms(longestGapMs)} (${ms(longestRunMs)} CPU), slowest probe ${ms(slowestProbeMs)}`,
  );
}
