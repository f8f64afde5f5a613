// Random faults under traffic. Always, from before the fault until all is healed: no packet that policy denies passes,
// and allowed traffic that the fault does not touch loses nothing. After healing: everything that is allowed works again,
// and every kernel holds what it held after the fresh start.
//   CHAOS_SEED=n      the same faults again
//   CHAOS_ROUNDS=n    how many (default 12)
//   CHAOS_DATAPLANE=nft|iptables, CHAOS_IPV6=yes|no     else the seed chooses
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
import { type Pair, type Sighting, Watch } from "./watch.ts";

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

/** How long a host whose packet filter somebody flushed may be open: the agent sees it within a second, or a busy machine's few. */
const OPEN_MS = 10_000;
const HEAL_MS = 60_000;
const SETTLED_MS = 3000;

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

/** @throws when it could not be done: a fault that did not happen proves nothing. */
async function inOwnProcess(verb: "break" | "heal", words: readonly string[] = []): Promise<void> {
  const command = [process.execPath, join(import.meta.dir, "fault.ts"), verb, options.name, ...words];
  const child = Bun.spawn(command, { stdin: "ignore", stdout: "ignore", stderr: "pipe" });
  const [code, said] = await Promise.all([child.exited, new Response(child.stderr).text()]);
  if (code !== 0) throw new Error(`${verb} ${words.join(" ")} failed: ${said.trim()}`);
}

const nodesOf = () => lab.plan.nodes.map(({ name }) => name);

/** What every kernel holds once it no longer changes: a pod's own route may be told before its block's, and taken back. */
async function settled(): Promise<ReadonlyMap<string, HostState>> {
  const look = () => new Map(nodesOf().map((node) => [node, stateOf(lab, node)]));
  let seen = look();
  const end = performance.now() + HEAL_MS;
  for (let since = performance.now(); performance.now() - since < SETTLED_MS; await Bun.sleep(250)) {
    const now = look();
    if (nodesOf().some((node) => difference(seen.get(node) ?? {}, now.get(node) ?? {}).length > 0)) {
      if (performance.now() > end) throw new Error("the kernels' state does not settle");
      seen = now;
      since = performance.now();
    }
  }
  return seen;
}

/** Until every kernel holds again what it held. */
async function restored(what: string, fresh: ReadonlyMap<string, HostState>): Promise<void> {
  for (const deadline = performance.now() + HEAL_MS; ; await Bun.sleep(250)) {
    const found = nodesOf().flatMap((node) => difference(fresh.get(node) ?? {}, stateOf(lab, node)));
    if (found.length === 0) return;
    if (performance.now() > deadline)
      throw new Error(`${what}: the state is not that of a fresh start:\n${found.join("\n")}`);
  }
}

/**
 * Until every BIRD has told its neighbours all it knows. Of one that goes again before, they must forget what they kept
 * for it (RFC 4724, 4.2): two crashes within those seconds cost packets whoever restarts it.
 */
function recovered(what: string): Promise<true> {
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

test("no fault opens what policy closes, and all of them heal", async () => {
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
  await watch.untilWhole("before any fault", HEAL_MS);
  const nodes = nodesOf();
  const fresh = await settled();
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
    await inOwnProcess("break", fault);
    const broken = performance.now();
    await Bun.sleep(500 + random(1500));
    await inOwnProcess("heal");
    const whole = await watch.untilWhole(what, HEAL_MS + (kind === "rules" ? OPEN_MS : 0));
    await restored(what, fresh);
    await recovered(what);

    // A foreign flush of the packet filter opens that host's pods until it is noticed: nothing is there to hold them
    // closed. Ways to pods of other hosts are guarded there.
    const mayPass = ({ at, pair }: Sighting) =>
      kind === "rules" && pair.to.node === node && at >= began && at < Math.min(whole, broken + OPEN_MS);
    // Only what cuts a wire or takes routes or rules away may cost packets, and only those of that host.
    const mayBeLost = ({ pair }: Sighting) =>
      ["link", "routes", "rules"].includes(kind) && [pair.from.node, pair.to.node].includes(node);
    const told = ({ at, pair: { from, to, request } }: Sighting) =>
      `${from.name} → ${to.name} ${request.to} port ${request.port}, ${Math.round(at - broken)} ms after the fault`;
    const { leaks, losses } = watch.take();
    const wrong = {
      leaks: leaks.filter((seen) => !mayPass(seen)).map(told),
      losses: losses.filter((seen) => !mayBeLost(seen)).map(told),
    };
    expect({ what, ...wrong }).toEqual({ what, leaks: [], losses: [] });
    const openMs = Math.max(0, ...leaks.map(({ at }) => at - broken));
    console.log(`chaos: ${what}: healed${leaks.length > 0 ? `, open for ${Math.round(openMs)} ms` : ""}`);
  }
}, 1_200_000);
