// Tests Felix with sets and rules of tens of thousands of prefixes: they are programmed, the event loop is not blocked, the
// liveness probe is always answered, and a later change of one member is cheap.
import { expect, test } from "bun:test";
import { feedPrefixes, type Measured, TimedAgent } from "../../support/timed-agent.ts";

const SIZE = 50_000;
/** Budget: 200 ms. CPU time of one thread, doubled by other load on the machine at times. */
const LONGEST_RUN_MS = 400;

const expectResponsive = ({ longestRunMs, slowestProbeMs }: Measured) => {
  expect(longestRunMs).toBeLessThan(LONGEST_RUN_MS);
  expect(slowestProbeMs).toBeLessThan(Number.POSITIVE_INFINITY);
};

for (const mode of ["nftables", "iptables"] as const)
  test(`${mode}: a network set of ${SIZE} prefixes neither blocks the agent nor makes later changes slower`, async () => {
    await using agent = await TimedAgent.start(mode);
    const before = await ownCpuOfAddition(agent, "before", 0);
    const load = await agent.measure(ADDITIONS + SIZE, () => agent.putFeed("feed", feedPrefixes(SIZE)));
    expectResponsive(load);
    expect(load.wallMs).toBeLessThan(20_000);
    const after = await ownCpuOfAddition(agent, "after", ADDITIONS + SIZE);
    expect({ before, after, isFlat: after < 2 * before + 10 }).toMatchObject({ isFlat: true });
  }, 120_000);

test(`nftables: a rule with ${SIZE} prefixes does not block the agent`, async () => {
  await using agent = await TimedAgent.start("nftables");
  expectResponsive(await agent.measure(0, () => agent.putPolicy("large", { nets: feedPrefixes(SIZE) })));
}, 120_000);

const ADDITIONS = 10;

/** Returns the user CPU time for one more member in a small network set that the same rule selects. */
async function ownCpuOfAddition(agent: TimedAgent, name: string, others: number): Promise<number> {
  const nets: string[] = [];
  let totalMs = 0;
  for (let i = 1; i <= ADDITIONS; i++) {
    nets.push(`198.51.${name.length}.${i}/32`);
    totalMs += (await agent.measure(others + i, () => agent.putFeed(name, nets))).userMs;
  }
  return totalMs / ADDITIONS;
}
