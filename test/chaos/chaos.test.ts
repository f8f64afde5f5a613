// Random faults under traffic. Always: no packet that policy denies passes, and allowed traffic that the fault does not
// touch loses nothing. After healing: everything that is allowed works again, and every kernel holds what it held after
// the fresh start.
//   CHAOS_SEED=n      the same faults again
//   CHAOS_ROUNDS=n    how many (default 12)
//   CHAOS_DATAPLANE=nft|iptables
import { afterAll, beforeAll, expect, test } from "bun:test";
import { PacketProber, type ProbeRequest } from "../../src/kernel/index.ts";
import { down } from "../../src/lab/down.ts";
import { breakLab, healLab } from "../../src/lab/faults.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { DEFAULT_OPTIONS } from "../../src/lab/options.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { addPods, up } from "../../src/lab/up.ts";
import { parseAddress } from "../../src/lib/ip.ts";
import { API_VERSION, type Resource } from "../../src/model/index.ts";
import { difference, type HostState, stateOf } from "./host-state.ts";

const seed = Number(process.env["CHAOS_SEED"] ?? Date.now() % 1_000_000);
const rounds = Number(process.env["CHAOS_ROUNDS"] ?? 12);
const dataplane = process.env["CHAOS_DATAPLANE"] === "iptables" ? "iptables" : "nft";
console.log(`chaos: CHAOS_SEED=${seed} CHAOS_ROUNDS=${rounds} CHAOS_DATAPLANE=${dataplane}`);

/** The same numbers for the same seed, on every machine. */
function randomNumbers(from: number): (below: number) => number {
  let state = from >>> 0 || 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

const quiet = openTerminal({ quiet: true });
const options = { ...DEFAULT_OPTIONS, name: "chaos", nodes: 3, podsPerNode: 0, dataplane, datastore: "etcd" } as const;
let lab: Lab;

/** Servers accept clients only; nobody may talk to a client. */
const policy: Resource = {
  apiVersion: API_VERSION,
  kind: "GlobalNetworkPolicy",
  metadata: { name: "servers" },
  spec: {
    namespaceSelector: "all()",
    types: ["Ingress"],
    ingress: [
      {
        action: "Allow",
        protocol: "TCP",
        source: { selector: "role == 'client'" },
        destination: { selector: "role == 'server'", ports: [80] },
      },
    ],
  },
};
const isAllowed = (from: LabPod, to: LabPod, port: number): boolean =>
  from.labels["role"] === "client" && to.labels["role"] === "server" && port === 80;

beforeAll(async () => {
  lab = await up(options, quiet);
  lab.apply([policy]);
  addPods(
    lab,
    lab.plan.nodes.flatMap((node, i) =>
      (["client", "server"] as const).map((role) => ({
        namespace: "default",
        name: `${role}${i + 1}`,
        node: node.name,
        labels: { role },
      })),
    ),
  );
}, 120_000);
afterAll(() => down(options.name, quiet), 60_000);

test("no fault opens what policy closes, and all of them heal", async () => {
  const random = randomNumbers(seed);
  using open = lab.openPods(lab.record.pods);
  using prober = new PacketProber();
  for (const target of open.targets.values()) for (const port of [80, 81]) prober.listen(target, "tcp", port);
  const pairs = lab.record.pods.flatMap((from) =>
    lab.record.pods.filter((to) => to !== from).flatMap((to) => [80, 81].map((port) => ({ from, to, port }))),
  );
  const requests: ProbeRequest[] = pairs.map(({ from, to, port }) => ({
    from: open.targets.get(from)!,
    to: parseAddress(to.addresses[0] ?? ""),
    protocol: "tcp",
    port,
  }));
  const passes = async (timeoutMs: number) => {
    const outcomes = await prober.probe(requests, { timeoutMs });
    return pairs.filter((_, i) => outcomes[i]?.result === "reached");
  };
  const leaks = (passed: typeof pairs) =>
    passed
      .filter(({ from, to, port }) => !isAllowed(from, to, port))
      .map(({ from, to, port }) => `${from.name} → ${to.name}:${port}`);
  const allowed = pairs.filter(({ from, to, port }) => isAllowed(from, to, port)).length;

  const settle = async (what: string, mayLeak = false) => {
    const deadline = performance.now() + 60_000;
    for (;;) {
      const passed = await passes(400);
      if (!mayLeak) expect({ what, leaks: leaks(passed) }).toEqual({ what, leaks: [] });
      if (passed.length === allowed && leaks(passed).length === 0) return;
      if (performance.now() > deadline)
        throw new Error(`${what}: ${passed.length} of ${allowed} allowed connections work`);
    }
  };
  /** A connection that did not get through at once has lost a packet: the next try of TCP comes after a second. */
  const losses = (passed: typeof pairs, isTouched: (node: string) => boolean) =>
    pairs
      .filter(({ from, to, port }) => isAllowed(from, to, port) && !isTouched(from.node) && !isTouched(to.node))
      .filter((pair) => !passed.includes(pair))
      .map(({ from, to, port }) => `${from.name} → ${to.name}:${port}`);
  const nodes = lab.plan.nodes.map(({ name }) => name);
  const states = () => new Map(nodes.map((node): [string, HostState] => [node, stateOf(lab, node)]));
  const restore = async (what: string, fresh: ReadonlyMap<string, HostState>) => {
    const deadline = performance.now() + 60_000;
    for (;;) {
      const now = states();
      const found = nodes.flatMap((node) => difference(fresh.get(node) ?? {}, now.get(node) ?? {}));
      if (found.length === 0) return;
      if (performance.now() > deadline)
        throw new Error(`${what}: the state is not that of a fresh start:\n${found.join("\n")}`);
      await Bun.sleep(250);
    }
  };
  await settle("before any fault");
  const fresh = states();

  for (let round = 0; round < rounds; round++) {
    const node = nodes[random(nodes.length)] ?? "node1";
    // Only what cuts a wire or takes routes away may cost packets, and only those of that host.
    const faults = [
      ["link", node],
      ["process", node, "-felix"],
      ["process", node, "bird"],
      ["process", node, "-confd"],
      ["process", node, "calico-node"],
      ["routes", node],
      ["rules", node],
      ["datastore"],
    ];
    const fault = faults[random(faults.length)] ?? ["routes", node];
    const what = `round ${round}, ${fault.join(" ")}`;
    try {
      breakLab(lab, fault);
    } catch (error) {
      console.log(`chaos: ${what}: ${error instanceof Error ? error.message : error}`);
      continue;
    }
    // A foreign flush of the packet filter opens that host until it is noticed, and there is nothing to hold it closed.
    const isOpen = (pod: LabPod) => fault[0] === "rules" && pod.node === node;
    const isTouched = (name: string) => ["link", "routes", "rules"].includes(fault[0] ?? "") && name === node;
    const until = performance.now() + 500 + random(1500);
    while (performance.now() < until) {
      const passed = await passes(900);
      expect({
        what,
        leaks: leaks(passed.filter(({ from, to }) => !isOpen(from) && !isOpen(to))),
        losses: losses(passed, isTouched),
      }).toEqual({ what, leaks: [], losses: [] });
    }
    await healLab(lab);
    await settle(what, fault[0] === "rules");
    await restore(what, fresh);
    console.log(`chaos: ${what}: healed`);
  }
}, 600_000);
