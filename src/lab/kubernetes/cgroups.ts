// Manages the control groups of a lab's nodes: one group per node in each hierarchy of the machine, which the node sees as its
// root. Supports one hierarchy per controller (v1) and the unified hierarchy (v2).
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { delay } from "../../lib/retry.ts";

const ROOT = "/sys/fs/cgroup";

export interface Hierarchy {
  /** Folder under /sys/fs/cgroup; empty for the unified hierarchy. */
  readonly folder: string;
  /** Mount options; undefined for the unified hierarchy. */
  readonly mountOptions: string | undefined;
}

/** Returns the hierarchies that a node needs, from /proc/self/cgroup and the mounted hierarchies. */
export function hierarchies(ownCgroups: string, isMounted: (folder: string) => boolean): Hierarchy[] {
  const v1 = ownCgroups.split("\n").flatMap((line): Hierarchy[] => {
    const controllers = line.split(":")[1];
    if (controllers === undefined || controllers === "") return [];
    const isNamed = controllers.startsWith("name=");
    const folder = isNamed ? controllers.slice("name=".length) : controllers;
    return isMounted(folder) ? [{ folder, mountOptions: isNamed ? `none,${controllers}` : controllers }] : [];
  });
  return v1.length > 0 ? v1 : [{ folder: "", mountOptions: undefined }];
}

export const machineHierarchies = (): Hierarchy[] =>
  hierarchies(readFileSync("/proc/self/cgroup", "utf8"), (folder) => existsSync(join(ROOT, folder, "cgroup.procs")));

/** A node's group in one hierarchy. */
const groupPath = ({ folder }: Hierarchy, group: string): string => join(ROOT, folder, group);

/** Creates the groups. Returns the files to which a process writes its pid to join them. */
export function createGroups(group: string): string[] {
  return machineHierarchies().map((hierarchy) => {
    const path = groupPath(hierarchy, group);
    mkdirSync(path, { recursive: true });
    // A new cpuset is empty, and no process can join an empty cpuset.
    for (const file of ["cpuset.cpus", "cpuset.mems"])
      if (hierarchy.folder.split(",").includes("cpuset") && readFileSync(join(path, file), "utf8").trim() === "")
        writeFileSync(join(path, file), readFileSync(join(path, "..", file), "utf8"));
    setCpuWeight(path);
    return join(path, "cgroup.procs");
  });
}

/** Otherwise, all programs of a node together would get the CPU share of one process on a busy machine. */
function setCpuWeight(path: string): void {
  for (const [file, value] of [
    ["cpu.shares", "8192"],
    ["cpu.weight", "800"],
  ] as const)
    if (existsSync(join(path, file))) writeFileSync(join(path, file), value);
}

/** In the unified hierarchy, a group with processes cannot delegate controllers, so its processes move to a child group. */
export function delegate(group: string): void {
  for (const hierarchy of machineHierarchies()) {
    if (hierarchy.mountOptions !== undefined) continue;
    const path = groupPath(hierarchy, group);
    const leaf = join(path, "lab");
    mkdirSync(leaf, { recursive: true });
    for (const pid of readFileSync(join(path, "cgroup.procs"), "utf8").split("\n"))
      if (pid !== "" && pid !== "0") writeFileSync(join(leaf, "cgroup.procs"), pid);
    for (const controller of readFileSync(join(path, "cgroup.controllers"), "utf8").trim().split(" "))
      if (controller !== "") writeFileSync(join(path, "cgroup.subtree_control"), `+${controller}`);
  }
}

/** Like the result of `createGroups`, for processes started after `delegate`. */
export const joinFiles = (group: string): string[] =>
  machineHierarchies().map((hierarchy) =>
    join(groupPath(hierarchy, group), hierarchy.mountOptions === undefined ? "lab/cgroup.procs" : "cgroup.procs"),
  );

/** Joins control groups, then executes the command. Arguments: number of files, the files, the command. */
const JOIN = `count=$1; shift
while [ "$count" -gt 0 ]; do echo $$ > "$1"; shift; count=$((count - 1)); done
exec "$@"`;

/** Returns the command line that runs a command in these groups. */
export function runInGroups(files: readonly string[], command: readonly string[]): readonly [string, ...string[]] {
  return ["sh", "-c", JOIN, "join", String(files.length), ...files, ...command];
}

/** Removes all groups with this prefix and their children. Their processes must have exited; the kernel may need a moment. */
export async function removeGroups(prefix: string): Promise<number> {
  const deadline = performance.now() + 5000;
  let removed = 0;
  for (const { folder } of machineHierarchies())
    for (const name of subfolders(join(ROOT, folder)).filter((entry) => entry.startsWith(prefix))) {
      const path = join(ROOT, folder, name);
      while (!removeTree(path) && performance.now() < deadline) await delay(20);
      removed++;
    }
  return removed;
}

/** Removes children first; returns false while the kernel still has members in a group. */
function removeTree(path: string): boolean {
  try {
    for (const child of subfolders(path)) if (!removeTree(join(path, child))) return false;
    rmdirSync(path);
    return true;
  } catch {
    return !existsSync(path);
  }
}

const subfolders = (path: string): string[] =>
  readdirSync(path, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
