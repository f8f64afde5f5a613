// Checks the direction of imports. A module (folder of src/) may import modules of lower rank, through their index.ts; imports
// within a module are not restricted. Only kernel/sys/ may import bun:ffi.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

const MODULE_RANK: Readonly<Record<string, number>> = {
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
};

/** These modules must do no I/O. */
const PURE_MODULES = new Set(["model", "policy", "calc"]);
const IO_MODULES = /^(node:(fs|net|tls|http|https|http2|dgram|child_process|worker_threads|dns)|bun|bun:sqlite)(\/|$)/;

const IMPORT =
  /\b(?:import|export)\b[^;'"`]*?\bfrom\s*["']([^"']+)["']|\bimport\s*\(\s*["']([^"']+)["']\s*\)|^import\s+["']([^"']+)["']/gm;

/** Returns one line for each forbidden import in src/. */
export function findImportFaults(root: string): string[] {
  const src = join(root, "src");
  const faults: string[] = [];
  for (const file of readdirSync(src, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const text = readFileSync(join(src, file), "utf8");
    for (const match of text.matchAll(IMPORT)) {
      const target = match[1] ?? match[2] ?? match[3];
      if (target === undefined) continue;
      const fault = findFault(src, file, target);
      if (fault !== undefined) faults.push(`src/${file}: imports ${target}: ${fault}`);
    }
  }
  return faults;
}

function findFault(src: string, file: string, target: string): string | undefined {
  const module = file.includes("/") ? file.split("/")[0] : undefined;
  const isTest = file.endsWith(".test.ts");
  if (target === "bun:ffi" && !file.startsWith("kernel/sys/")) return "only kernel/sys imports bun:ffi";
  if (!target.startsWith(".")) {
    if (module !== undefined && PURE_MODULES.has(module) && !isTest && IO_MODULES.test(target))
      return `${module} does no I/O`;
    return undefined;
  }
  const path = relative(src, resolve(src, dirname(file), target));
  if (path.startsWith("..")) return isTest ? undefined : "the file is outside src";
  if (!path.includes("/")) return module === undefined ? undefined : "modules must not import the entry point";
  const targetModule = path.split("/")[0] ?? "";
  if (targetModule === module || module === undefined) return undefined;
  const from = MODULE_RANK[module];
  const to = MODULE_RANK[targetModule];
  if (from === undefined || to === undefined)
    return `${from === undefined ? module : targetModule} is not in the list of modules in scripts/imports.ts`;
  if (from <= to) return `${module} may not import ${targetModule}, which does not have a lower rank`;
  if (targetModule !== "lib" && path !== `${targetModule}/index.ts`)
    return `import ${targetModule} through its index.ts`;
  return undefined;
}
