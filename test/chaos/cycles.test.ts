// A lab that is made and taken down again and again leaves nothing: counted on the whole machine before and after.
//   LAB_CYCLES=n   how often (default 50)
import { expect, test } from "bun:test";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { down } from "../../src/lab/down.ts";
import { LAB_ROOT } from "../../src/lab/folder.ts";
import { DEFAULT_OPTIONS } from "../../src/lab/options.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { up } from "../../src/lab/up.ts";

const cycles = Number(process.env["LAB_CYCLES"] ?? 50);
const quiet = openTerminal({ quiet: true });
const name = "cycles";

interface Count {
  readonly processes: number;
  readonly namespaces: number;
  readonly links: number;
  readonly mounts: number;
  readonly files: number;
}

/** Every network namespace a lab of this name has had. A process outlives its name, not its namespace. */
const spaces = new Set<number>();
function inode(path: string): number {
  try {
    return statSync(path).ino;
  } catch {
    return -1; // it ended just now
  }
}

/** In seconds of the machine's life. The kernel gives a number of a dead namespace to the next: what began later is not the lab's. */
function startOf(pid: string): number {
  try {
    return Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[19]) / 100;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
const uptime = () => Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);

/** Only what carries the lab's name, so that other labs may run beside it; all links of this network namespace. */
function count(before = Number.POSITIVE_INFINITY): Count {
  const lines = (path: string) => readFileSync(path, "utf8").split("\n");
  const folder = (path: string) => {
    try {
      return readdirSync(path);
    } catch {
      return [];
    }
  };
  const namespaces = folder("/run/netns").filter((ns) => ns.includes(name));
  for (const ns of namespaces) spaces.add(inode(`/run/netns/${ns}`));
  const processes = folder("/proc").filter(
    (pid) => /^\d+$/.test(pid) && spaces.has(inode(`/proc/${pid}/ns/net`)) && startOf(pid) < before,
  );
  return {
    processes: processes.length,
    namespaces: namespaces.length,
    links: folder("/sys/class/net").length,
    mounts: lines("/proc/self/mountinfo").filter((line) => line.includes(name)).length,
    files: [LAB_ROOT, "/run", tmpdir()].flatMap(folder).filter((file) => file.includes(name)).length,
  };
}

test(`${cycles} labs made and taken down leave nothing`, async () => {
  await down(name, quiet);
  const before = count();
  const rss: number[] = [];
  const started = performance.now();
  let busiest: Count = before;
  for (let i = 0; i < cycles; i++) {
    const topology = (["switch", "racks", "reflectors"] as const)[i % 3] ?? "switch";
    await up(
      { ...DEFAULT_OPTIONS, name, nodes: 3, podsPerNode: 1, topology, dataplane: i % 2 === 0 ? "nft" : "iptables" },
      quiet,
    );
    if (i === 0) busiest = count();
    const ended = uptime();
    await down(name, quiet);
    expect({ cycle: i, ...count(ended) }).toEqual({ cycle: i, ...before });
    Bun.gc(true);
    rss.push(process.memoryUsage.rss() / 2 ** 20);
  }
  const [early, late] = [rss[Math.min(9, cycles - 1)] ?? 0, rss.at(-1) ?? 0];
  console.log(
    `cycles: ${cycles} in ${((performance.now() - started) / 1000).toFixed(0)} s; while one stood: ${JSON.stringify(busiest)}; ` +
      `after each: ${JSON.stringify(before)}; memory ${early.toFixed(0)} MB after 10, ${late.toFixed(0)} MB at the end`,
  );
  // The counting counts: a lab that stands is seen.
  expect(busiest.processes).toBeGreaterThan(3);
  expect(busiest.namespaces + busiest.mounts + busiest.files).toBeGreaterThan(0);
  expect(late).toBeLessThan(early + 30);
}, 1_800_000);
