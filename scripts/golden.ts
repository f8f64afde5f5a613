// Replays the recordings of the original system on dist/ with the checker that lies beside them. They are not part
// of this project: without `../shared/golden` there is nothing to do, and this says so.
//
//   bun scripts/golden.ts [SUITE …]     all suites that are ready, or the named ones
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const recordings = join(root, "../shared/golden");
const exceptions = join(root, "test/golden-exceptions.txt");

/** What each suite drives. A suite joins the list of the ready when it reaches its target and stays there. */
const suites: Readonly<Record<string, { readonly drive: readonly string[]; readonly ready: boolean }>> = {
  datamodel: { drive: ["--calicoctl", "dist/calicoctl"], ready: true },
  calicoctl: { drive: ["--calicoctl", "dist/calicoctl"], ready: true },
  validation: { drive: ["--calicoctl", "dist/calicoctl"], ready: true },
  startup: { drive: ["--startup", "dist/calico-node -startup"], ready: true },
  bgp: { drive: ["--calicoctl", "dist/calicoctl"], ready: true },
  felix: { drive: ["--felix", "dist/calico-node -felix"], ready: false },
  messages: { drive: ["--felix", "dist/calico-node -felix"], ready: true },
  cni: { drive: ["--bin", "dist"], ready: true },
  ipam: { drive: ["--bin", "dist"], ready: true },
};

const named = process.argv.slice(2);
const unknown = named.filter((name) => !Object.hasOwn(suites, name));
if (unknown.length > 0) {
  console.error(`golden: no suite ${unknown.join(", ")}; there are ${Object.keys(suites).join(", ")}`);
  process.exit(2);
}
if (!existsSync(join(recordings, "check.ts"))) {
  console.log("golden: the recordings are not beside this checkout (../shared/golden), nothing to replay");
  process.exit(0);
}
if (process.getuid?.() !== 0) {
  console.log("golden: replaying the recordings needs root, for network namespaces");
  process.exit(0);
}

const total = { passed: 0, failed: 0, expected: 0 };
for (const [name, suite] of Object.entries(suites)) {
  if (named.length > 0 ? !named.includes(name) : !suite.ready) continue;
  const { code, output } = await check(name, suite.drive);
  const counts = new RegExp(`^${name}: (\\d+) passed, (\\d+) failed, (\\d+) differ`, "m").exec(output);
  total.passed += Number(counts?.[1] ?? 0);
  total.expected += Number(counts?.[3] ?? 0);
  total.failed += Math.max(Number(counts?.[2] ?? 0), code === 0 ? 0 : 1);
  // An exception that nothing needs any more would hide the next mistake.
  const idle = exceptionsOf(name) - Number(counts?.[3] ?? 0);
  if (idle > 0) console.log(`golden: ${name}: at least ${idle} of its lines in test/golden-exceptions.txt can go`);
}
console.log(`golden: ${total.passed} passed, ${total.failed} failed, ${total.expected} skipped`);
process.exitCode = total.failed === 0 ? 0 : 1;

function exceptionsOf(suite: string): number {
  return readFileSync(exceptions, "utf8")
    .split("\n")
    .filter((line) => line.startsWith(`${suite}:`)).length;
}

/**
 * The checker counts expected differences against its percentage. Where the original crashes or misreads its input
 * ours must differ, so here only that counts: nothing but what test/golden-exceptions.txt names may differ.
 */
function check(suite: string, drive: readonly string[]): Promise<{ code: number; output: string }> {
  const args = [join(recordings, "check.ts"), suite, "--except", exceptions, "--want", "1", ...drive];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString();
      process.stdout.write(chunk);
    });
    child.on("error", reject);
    child.on("close", (code) => resolve({ code: code ?? 1, output }));
  });
}
