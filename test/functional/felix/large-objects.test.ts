// Tests Felix with objects of the maximum size that an API server stores: none of them blocks the event loop, and the health
// port always answers.
import { expect, test } from "bun:test";
import { openFlows } from "../../support/flows.ts";
import { TimedAgent, WORKLOAD } from "../../support/timed-agent.ts";

/** Budget: 200 ms. CPU time of one thread, doubled by other load on the machine at times. */
const LONGEST_RUN_MS = 400;
const CONNECTIONS = 200_000;

const list = <T>(count: number, item: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => item(i));
const policy = (ingress: readonly object[]) => ({ order: 1, selector: "all()", types: ["Ingress"], ingress });
const allow = (more: object) => ({ action: "Allow", protocol: "TCP", ...more });
const names = (count: number, first: number) => list(count, (i) => `p${first + i}`);

const POLICIES: Readonly<Record<string, (isEdited: boolean) => object>> = {
  "30,000 ports": (isEdited) =>
    policy([allow({ destination: { ports: list(isEdited ? 29_999 : 30_000, (i) => 1 + 2 * i) } })]),
  "nine rules with 50 named ports on both sides": (isEdited) =>
    policy(
      list(isEdited ? 8 : 9, (i) =>
        allow({ source: { ports: names(50, 100 * i) }, destination: { ports: names(50, 100 * i + 50) } }),
      ),
    ),
  "60,000 named ports": (isEdited) => policy([allow({ destination: { ports: names(isEdited ? 59_999 : 60_000, 0) } })]),
  "100,000 values of a selector": (isEdited) => {
    const values = list(isEdited ? 99_999 : 100_000, (i) => `'${i}'`).join(",");
    return policy([allow({ source: { selector: `app not in {${values}}` } })]);
  },
  "50,000 exceptions": (isEdited) => {
    const notNets = list(isEdited ? 49_999 : 50_000, (i) => `10.${i >> 8}.${i & 255}.0/25`);
    return policy([allow({ source: { notNets } })]);
  },
};

for (const mode of ["nftables", "iptables"] as const)
  test(`${mode}: no object and no number of connections blocks the agent`, async () => {
    await using agent = await TimedAgent.start(mode);
    const { store } = agent;
    const blocked: string[] = [];
    const measure = async (what: string, write: () => Promise<void>) => {
      const { longestRunMs, slowestProbeMs } = await agent.measureUntilIdle(write);
      if (longestRunMs > LONGEST_RUN_MS || slowestProbeMs === Number.POSITIVE_INFINITY)
        blocked.push(`${what}: ${longestRunMs.toFixed()} ms, slowest probe ${slowestProbeMs.toFixed()} ms`);
    };
    for (const [name, build] of Object.entries(POLICIES)) {
      await measure(`create ${name}`, () => store.put("GlobalNetworkPolicy", "large", build(false)));
      await measure(`edit ${name}`, () => store.put("GlobalNetworkPolicy", "large", build(true)));
      await measure(`delete ${name}`, () => store.remove("GlobalNetworkPolicy", "large"));
    }
    const labels = Object.fromEntries(names(60_000, 0).map((name) => [name, ""]));
    const putLabels = (more: object) =>
      store.put("GlobalNetworkSet", "large", { nets: ["192.0.2.0/24"] }, { labels: { ...labels, ...more } });
    await measure("create 60,000 labels", () => putLabels({ feed: "none" }));
    await measure("edit 60,000 labels", () => putLabels({ feed: "threats" }));
    await measure("delete 60,000 labels", () => store.remove("GlobalNetworkSet", "large"));
    expect(openFlows(agent.namespace, WORKLOAD.address, CONNECTIONS)).toBe(CONNECTIONS);
    await measure(`${CONNECTIONS} connections`, () =>
      store.remove("WorkloadEndpoint", WORKLOAD.name, WORKLOAD.namespace),
    );
    expect(blocked).toEqual([]);
  }, 300_000);
