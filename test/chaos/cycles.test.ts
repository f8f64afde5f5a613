// Tests that creating and removing labs repeatedly leaves no resources: counts them while each lab exists and afterwards.
//   LAB_CYCLES=n   number of labs (default 50)
import { expect, test } from "bun:test";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { down } from "../../src/lab/down.ts";
import { LAB_ROOT } from "../../src/lab/folder.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { DEFAULT_OPTIONS } from "../../src/lab/options.ts";
import { namespaceFolderOf } from "../../src/lab/process.ts";
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

/**
 * Inodes of the namespaces of the current or last lab: network and mount namespaces of hosts, and network namespaces of pods,
 * which have names only in their hosts.
 */
const namespaces = new Set<number>();
function folder(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
const hostNamespaces = () => folder("/run/netns").filter((ns) => ns.includes(name));
function inode(path: string): number {
  try {
    return statSync(path).ino;
  } catch {
    return -1; // it has exited meanwhile
  }
}

/** Records the namespaces of a lab instead of those of the last one. Returns the number of pod namespaces. */
function recordNamespaces(lab: Lab): number {
  namespaces.clear();
  for (const ns of hostNamespaces()) namespaces.add(inode(`/run/netns/${ns}`));
  const pods = lab.hostNames.flatMap((host) => {
    const holder = lab.host(host).holder?.pid ?? 0;
    namespaces.add(inode(`/proc/${holder}/ns/mnt`));
    const names = namespaceFolderOf(holder);
    return folder(names).map((pod) => inode(join(names, pod)));
  });
  for (const pod of pods) namespaces.add(pod);
  namespaces.delete(-1);
  return new Set(pods).size;
}

/** Start time in seconds since boot. The kernel reuses inodes of namespaces: a process that started later does not belong to the lab. */
function startOf(pid: string): number {
  try {
    return Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[19]) / 100;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
const uptime = () => Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);

/** Counts resources with the lab's name, because other labs may exist, and all links of this network namespace. */
function count(before = Number.POSITIVE_INFINITY): Count {
  const lines = (path: string) => readFileSync(path, "utf8").split("\n");
  const processes = folder("/proc").filter(
    (pid) =>
      /^\d+$/.test(pid) &&
      ["net", "mnt"].some((kind) => namespaces.has(inode(`/proc/${pid}/ns/${kind}`))) &&
      startOf(pid) < before,
  );
  return {
    processes: processes.length,
    namespaces: hostNamespaces().length,
    links: folder("/sys/class/net").length,
    mounts: lines("/proc/self/mountinfo").filter((line) => line.includes(name)).length,
    files: [LAB_ROOT, "/run", tmpdir()].flatMap(folder).filter((file) => file.includes(name)).length,
  };
}

test(`${cycles} labs are created and removed without remaining resources`, async () => {
  await down(name, quiet);
  const before = count();
  const rss: number[] = [];
  const started = performance.now();
  const stood: Count[] = [];
  for (let i = 0; i < cycles; i++) {
    const topology = (["switch", "racks", "reflectors"] as const)[i % 3] ?? "switch";
    const lab = await up(
      { ...DEFAULT_OPTIONS, name, nodes: 3, podsPerNode: 1, topology, dataplane: i % 2 === 0 ? "nft" : "iptables" },
      quiet,
    );
    // Checks the counting itself: it must find each existing lab, with its hosts and pods.
    const pods = recordNamespaces(lab);
    const standing = count();
    expect({ cycle: i, pods, hosts: standing.namespaces }).toEqual({
      cycle: i,
      pods: 3,
      hosts: lab.hostNames.length + 1,
    });
    expect(standing.processes).toBeGreaterThan(lab.hostNames.length + lab.plan.nodes.length);
    stood.push(standing);
    const ended = uptime();
    await down(name, quiet);
    expect({ cycle: i, ...count(ended) }).toEqual({ cycle: i, ...before });
    Bun.gc(true);
    rss.push(process.memoryUsage.rss() / 2 ** 20);
  }
  const [early, late] = [rss[Math.min(9, cycles - 1)] ?? 0, rss.at(-1) ?? 0];
  console.log(
    `cycles: ${cycles} in ${((performance.now() - started) / 1000).toFixed(0)} s; while the first existed: ${JSON.stringify(stood[0])}; ` +
      `after each: ${JSON.stringify(before)}; memory ${early.toFixed(0)} MB after 10, ${late.toFixed(0)} MB at the end`,
  );
  expect(stood.every(({ mounts, files }) => mounts + files > 0)).toBe(true);
  expect(late).toBeLessThan(early + 30);
}, 1_800_000);
