// `make check`: types, lint, format, imports, unused exports, new sleeps in tests, and the subject lines of commits. Runs all
// checks at the same time and prints the output of those that failed.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { findSubjectFaults } from "./commit-subjects.ts";
import { findUnusedExports } from "./exports.ts";
import { findImportFaults } from "./imports.ts";
import { findNewSleeps } from "./sleeps.ts";

const root = join(import.meta.dir, "..");
const bin = (name: string) => join(root, "node_modules/.bin", name);

const steps: readonly { name: string; run: () => Promise<string | undefined> }[] = [
  { name: "types", run: () => tool(bin("tsc"), ["--noEmit", "-p", "."]) },
  { name: "lint", run: () => tool(bin("oxlint"), ["--quiet", "src", "test", "bench", "scripts"]) },
  { name: "format", run: () => tool(bin("biome"), ["format", "--max-diagnostics=10"]) },
  { name: "imports", run: async () => findImportFaults(root).join("\n") || undefined },
  { name: "exports", run: async () => findUnusedExports(root).join("\n") || undefined },
  { name: "sleeps", run: async () => findNewSleeps(root).join("\n") || undefined },
  { name: "commit subjects", run: async () => findSubjectFaults(root).join("\n") || undefined },
];

const started = performance.now();
const results = await Promise.all(steps.map(async (step) => ({ name: step.name, fault: await step.run() })));
const failed = results.filter((r) => r.fault !== undefined);
for (const { name, fault } of failed) console.error(`check: ${name}\n${fault}`);
const seconds = ((performance.now() - started) / 1000).toFixed(1);
console.log(
  failed.length === 0
    ? `check: ${steps.map((s) => s.name).join(", ")} fine in ${seconds} s`
    : `check: ${failed.map((f) => f.name).join(", ")} failed`,
);
process.exitCode = failed.length === 0 ? 0 : 1;

/** Returns the output of the tool if it failed, otherwise undefined. */
function tool(command: string, args: readonly string[]): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
    child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
    child.on("error", reject);
    child.on("close", (code) => resolve(code === 0 ? undefined : output));
  });
}
