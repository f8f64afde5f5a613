// Measures listing 10,000 routes, compared with `ip -j`, and adding them in one batch, compared with `ip -batch`. Prints
// medians of alternating runs.
import { execFileSync } from "node:child_process";
import { createNamedNamespace, deleteNamedNamespace, NetworkNamespace, openRtnetlink } from "../src/kernel/index.ts";
import { parseCidr } from "../src/lib/ip/ip.ts";

const ROUTES = 10_000;
const RUNS = 15;
const name = `bench-kernel-${process.pid}`;

createNamedNamespace(name);
try {
  using namespace = NetworkNamespace.named(name);
  using kernel = openRtnetlink(namespace);
  kernel.links.create({ name: "v0", up: true, type: { kind: "veth", peer: { name: "v1" } } });
  kernel.links.set("v1", { up: true });
  const link = kernel.links.get("v0")!.index;
  const destinations = Array.from({ length: ROUTES }, (_, i) => parseCidr(`10.3.${i >> 8}.${i & 255}/32`));
  const add = destinations.map((destination) => ({ action: "add" as const, route: { destination, link } }));
  const remove = destinations.map((destination) => ({ action: "delete" as const, route: { destination, link } }));
  const script = destinations.map((destination) => `route add ${destination} dev v0`).join("\n");

  const times: Record<string, number[]> = {};
  const timed = <T>(what: string, action: () => T): T => {
    const start = performance.now();
    const result = action();
    (times[what] ??= []).push(performance.now() - start);
    return result;
  };
  const list = () => kernel.routes.list({ version: 4, table: 254 });
  for (let run = 0; run < RUNS; run++) {
    timed("add, ours", () => kernel.routes.apply(add));
    const ours = timed("list, ours", list).length;
    const text = timed("list, ip -j", () =>
      execFileSync("ip", ["-n", name, "-j", "route"], { encoding: "utf8", maxBuffer: 1 << 26 }),
    );
    const theirs = timed("list, ip -j", () => (JSON.parse(text) as unknown[]).length);
    if (ours !== ROUTES || theirs !== ROUTES) throw new Error(`listed ${ours} and ${theirs} routes`);
    times["list, ip -j"]?.push((times["list, ip -j"].pop() ?? 0) + (times["list, ip -j"].pop() ?? 0));
    kernel.routes.apply(remove);
    if (run % 5 === 0) {
      timed("add, ip -batch", () => execFileSync("ip", ["-n", name, "-batch", "-"], { input: script }));
      kernel.routes.apply(remove);
    }
  }
  const median = (what: string) => times[what]!.sort((a, b) => a - b)[Math.floor(times[what]!.length / 2)]!;
  for (const [what, ours, theirs] of [
    ["list", "list, ours", "list, ip -j"],
    ["add", "add, ours", "add, ip -batch"],
  ] as const) {
    const [a, b] = [median(ours), median(theirs)];
    console.log(
      `kernel-route: ${what} ${ROUTES} routes: ours ${a.toFixed(1)} ms, ${theirs.split(", ")[1]} ${b.toFixed(1)} ms, ratio ${(a / b).toFixed(2)}`,
    );
  }
} finally {
  deleteNamedNamespace(name);
}
