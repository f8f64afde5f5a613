// Imports point down the street only. A room (folder of src/) may import rooms of lower rank, through
// their index.ts; its own files are free. bun:ffi stays in kernel/sys/.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

const ROOM_RANK: Readonly<Record<string, number>> = {
  lib: 0,
  model: 1,
  kernel: 2,
  policy: 2,
  datastore: 2,
  ipam: 3,
  calc: 3,
  bgp: 3,
  typha: 3,
  dataplane: 4,
  felix: 5,
  cni: 5,
  controllers: 5,
  node: 6,
  calicoctl: 7,
  lab: 7,
  console: 7,
};

/** No I/O at all in here: these rooms must stay pure. */
const PURE_ROOMS = new Set(["model", "policy", "calc"]);
const IO_MODULES = /^(node:(fs|net|tls|http|https|http2|dgram|child_process|worker_threads|dns)|bun|bun:sqlite)(\/|$)/;

const IMPORT =
  /\b(?:import|export)\b[^;'"`]*?\bfrom\s*["']([^"']+)["']|\bimport\s*\(\s*["']([^"']+)["']\s*\)|^import\s+["']([^"']+)["']/gm;

/** One sentence per wrong import in src/; empty when all arrows point down. */
export function findImportFaults(root: string): string[] {
  const src = join(root, "src");
  const faults: string[] = [];
  for (const file of readdirSync(src, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const text = readFileSync(join(src, file), "utf8");
    for (const match of text.matchAll(IMPORT)) {
      const target = match[1] ?? match[2] ?? match[3];
      if (target === undefined) continue;
      const fault = judge(src, file, target);
      if (fault !== undefined) faults.push(`src/${file}: imports ${target}: ${fault}`);
    }
  }
  return faults;
}

function judge(src: string, file: string, target: string): string | undefined {
  const room = file.includes("/") ? file.split("/")[0] : undefined;
  const isTest = file.endsWith(".test.ts");
  if (target === "bun:ffi" && !file.startsWith("kernel/sys/")) return "only kernel/sys imports bun:ffi";
  if (!target.startsWith(".")) {
    if (room !== undefined && PURE_ROOMS.has(room) && !isTest && IO_MODULES.test(target)) return `${room} does no I/O`;
    return undefined;
  }
  const path = relative(src, resolve(src, dirname(file), target));
  if (path.startsWith("..")) return isTest ? undefined : "it lies outside src";
  if (!path.includes("/")) return room === undefined ? undefined : "a room never imports the entry";
  const targetRoom = path.split("/")[0] ?? "";
  if (targetRoom === room || room === undefined) return undefined;
  const from = ROOM_RANK[room];
  const to = ROOM_RANK[targetRoom];
  if (from === undefined || to === undefined)
    return `${from === undefined ? room : targetRoom} is no room of the street`;
  if (from <= to) return `${room} may not import ${targetRoom}: the arrow points up or sideways`;
  if (targetRoom !== "lib" && path !== `${targetRoom}/index.ts`) return `enter ${targetRoom} through its index.ts`;
  return undefined;
}
