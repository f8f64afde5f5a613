// Injects random faults under traffic. From before each fault until it is repaired, no packet that policy denies passes, and no
// allowed packet is lost that the fault does not affect. Afterwards all allowed connections work, and the state of all kernels is
// the same as after the start.
//   CHAOS_SEED=n      repeats the faults of an earlier run
//   CHAOS_ROUNDS=n    number of faults (default 12)
//   CHAOS_DATAPLANE=nft|iptables, CHAOS_IPV6=yes|no     chosen by the seed by default
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { PacketProber } from "../../src/kernel/index.ts";
import { down } from "../../src/lab/down.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { DEFAULT_OPTIONS } from "../../src/lab/options.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { addPods, up } from "../../src/lab/up.ts";
import { parseAddress } from "../../src/lib/ip/ip.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { API_VERSION, type Resource } from "../../src/model/index.ts";
import { randomNumbers } from "../support/random-numbers.ts";
import { difference, type HostState, stateOf } from "./host-state.ts";
import { type Pair, type Violation, Watch } from "./watch.ts";

const seed = Number(process.env["CHAOS_SEED"] ?? Date.now() % 1_000_000);
const rounds = Number(process.env["CHAOS_ROUNDS"] ?? 12);

const random = randomNumbers(seed);
const isSeedNft = random(2) === 0;
const isSeedIpv6 = random(2) === 0;
const dataplane = (process.env["CHAOS_DATAPLANE"] ?? (isSeedNft ? "nft" : "iptables")) === "nft" ? "nft" : "iptables";
const ipv6 = (process.env["CHAOS_IPV6"] ?? (isSeedIpv6 ? "yes" : "no")) === "yes";
console.log(
  `chaos: CHAOS_SEED=${seed} CHAOS_ROUNDS=${rounds} CHAOS_DATAPLANE=${dataplane} CHAOS_IPV6=${ipv6 ? "yes" : "no"}`,
);

/** How long denied packets may pass after a host's rules were flushed. The agent notices within a second; a busy machine needs longer. */
const OPEN_MS = 10_000;
const HEAL_MS = 60_000;
const STABLE_MS = 3000;

const quiet = openTerminal({ quiet: true });
const options = {
  ...DEFAULT_OPTIONS,
  name: "chaos",
  nodes: 3,
  podsPerNode: 0,
  dataplane,
  datastore: "etcd",
  ipv6,
} as const;
let lab: Lab;

/** Servers accept connections only from clients; clients accept none. */
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

/** @throws if the command fails: a fault that was not injected would prove nothing */
async function runInChild(verb: "break" | "heal", words: readonly string[] = []): Promise<void> {
  const command = [process.execPath, join(import.meta.dir, "fault.ts"), verb, options.name, ...words];
  const child = Bun.spawn(command, { stdin: "ignore", stdout: "ignore", stderr: "pipe" });
  const [code, errors] = await Promise.all([child.exited, new Response(child.stderr).text()]);
  if (code !== 0) throw new Error(`${verb} ${words.join(" ")} failed: ${errors.trim()}`);
}

const nodesOf = () => lab.plan.nodes.map(({ name }) => name);

/** Waits until the state of all kernels is stable, and returns it. A pod's own route may be announced before its block's route. */
async function stableState(): Promise<ReadonlyMap<string, HostState>> {
  const readAll = () => new Map(nodesOf().map((node) => [node, stateOf(lab, node)]));
  let seen = readAll();
  const deadlineMs = performance.now() + HEAL_MS;
  for (let since = performance.now(); performance.now() - since < STABLE_MS; await Bun.sleep(250)) {
    const now = readAll();
    if (nodesOf().some((node) => difference(seen.get(node) ?? {}, now.get(node) ?? {}).length > 0)) {
      if (performance.now() > deadlineMs) throw new Error("the state of the kernels does not become stable");
      seen = now;
      since = performance.now();
    }
  }
  return seen;
}

/** Waits until all kernels have the state of the start. */
async function waitUntilRestored(what: string, fresh: ReadonlyMap<string, HostState>): Promise<void> {
  for (const deadline = performance.now() + HEAL_MS; ; await Bun.sleep(250)) {
    const found = nodesOf().flatMap((node) => difference(fresh.get(node) ?? {}, stateOf(lab, node)));
    if (found.length === 0) return;
    if (performance.now() > deadline)
      throw new Error(`${what}: the state differs from that after the start:\n${found.join("\n")}`);
  }
}

/**
 * Waits until all BIRDs have recovered. If a BIRD fails again before that, its peers delete its routes (RFC 4724, 4.2), so two
 * crashes within seconds always lose packets.
 */
function waitUntilRecovered(what: string): Promise<true> {
  const sockets = ipv6 ? ["bird.ctl", "bird6.ctl"] : ["bird.ctl"];
  const hasRecovered = (node: string, socket: string): boolean => {
    const { stdout } = lab.host(node).run(["birdc", "-s", `/run/calico/${socket}`, "show", "status"]);
    return stdout.includes("up and running") && !stdout.includes("Graceful restart");
  };
  return eventually(
    () => nodesOf().every((node) => sockets.every((socket) => hasRecovered(node, socket))),
    HEAL_MS,
    `${what}: every BIRD has recovered`,
  );
}

test("no fault lets denied packets pass, and all faults can be repaired", async () => {
  using open = lab.openPods(lab.record.pods);
  using prober = new PacketProber();
  for (const target of open.targets.values()) for (const port of [80, 81]) prober.listen(target, "tcp", port);
  const pairs = lab.record.pods.flatMap((from) =>
    lab.record.pods
      .filter((to) => to !== from)
      .flatMap((to) => to.addresses.flatMap((address) => [80, 81].map((port) => ({ to, address, port }))))
      .map(
        ({ to, address, port }): Pair => ({
          from,
          to,
          isAllowed: isAllowed(from, to, port),
          request: { from: open.targets.get(from)!, to: parseAddress(address), protocol: "tcp", port },
        }),
      ),
  );
  await using watch = new Watch(prober, pairs);
  await watch.waitUntilCorrect("before any fault", HEAL_MS);
  const nodes = nodesOf();
  const fresh = await stableState();
  watch.take();

  for (let round = 0; round < rounds; round++) {
    const node = nodes[random(nodes.length)] ?? "node1";
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
    const [kind = ""] = fault;
    const what = `round ${round}, ${fault.join(" ")}`;
    const began = performance.now();
    await runInChild("break", fault);
    const broken = performance.now();
    await Bun.sleep(500 + random(1500));
    await runInChild("heal");
    const whole = await watch.waitUntilCorrect(what, HEAL_MS + (kind === "rules" ? OPEN_MS : 0));
    await waitUntilRestored(what, fresh);
    await waitUntilRecovered(what);

    // After its rules were flushed, a host does not protect its pods until the agent notices. Connections to pods of other
    // hosts are filtered there.
    const mayPass = ({ at, pair }: Violation) =>
      kind === "rules" && pair.to.node === node && at >= began && at < Math.min(whole, broken + OPEN_MS);
    // Only faults of links, routes and rules may lose packets, and only those of that host.
    const mayBeLost = ({ pair }: Violation) =>
      ["link", "routes", "rules"].includes(kind) && [pair.from.node, pair.to.node].includes(node);
    const format = ({ at, pair: { from, to, request } }: Violation) =>
      `${from.name} → ${to.name} ${request.to} port ${request.port}, ${Math.round(at - broken)} ms after the fault`;
    const { leaks, losses } = watch.take();
    const wrong = {
      leaks: leaks.filter((seen) => !mayPass(seen)).map(format),
      losses: losses.filter((seen) => !mayBeLost(seen)).map(format),
    };
    expect({ what, ...wrong }).toEqual({ what, leaks: [], losses: [] });
    const openMs = Math.max(0, ...leaks.map(({ at }) => at - broken));
    console.log(`chaos: ${what}: healed${leaks.length > 0 ? `, open for ${Math.round(openMs)} ms` : ""}`);
  }
}, 1_200_000);
