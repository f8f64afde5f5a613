// Replays the recordings of the original system on dist/ with the checker that lies beside them. They are not part
// of this project: without `../shared/golden` there is nothing to do, and this says so.
//
//   bun scripts/golden.ts [SUITE …]     all suites, or the named ones
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { areRecordingsThere, recordings, type Suite, suites } from "./golden-suites.ts";

/** Of the checks that are not demanded to differ. */
const WANTED_PERCENT = 99;
const root = join(import.meta.dir, "..");
const exceptions = join(root, "test/golden-exceptions.txt");

const named = process.argv.slice(2);
const unknown = named.filter((name) => !Object.hasOwn(suites, name));
if (unknown.length > 0) {
  console.error(`golden: no suite ${unknown.join(", ")}; there are ${Object.keys(suites).join(", ")}`);
  process.exit(2);
}
if (!areRecordingsThere) {
  console.log("golden: the recordings are not beside this checkout (../shared/golden), nothing to replay");
  console.log("golden: 0 passed, 0 failed, 1 skipped");
  process.exit(0);
}
if (process.getuid?.() !== 0) {
  console.log("golden: replaying the recordings needs root, for network namespaces");
  console.log("golden: 0 passed, 0 failed, 1 skipped");
  process.exit(0);
}

/** The agents write where a node keeps its state (its MTU, for one): they get folders that go with them. */
const PRIVATE = `for folder in /var/lib/calico /var/run/calico; do
  mkdir -p $folder && mount -t tmpfs calico-golden $folder || exit; done; exec "$0" "$@"`;
const APART = ["--mount", "--propagation", "slave", "sh", "-c", PRIVATE];

const total = { passed: 0, failed: 0, expected: 0 };
for (const [name, suite] of Object.entries(suites)) {
  if (named.length > 0 && !named.includes(name)) continue;
  const startedAt = performance.now();
  const counts = await replay(name, suite);
  total.passed += counts.passed;
  total.expected += counts.expected;
  total.failed += counts.failed;
  if (suite.parts !== undefined) {
    const seconds = Math.round((performance.now() - startedAt) / 1000);
    console.log(
      `${name}: ${counts.passed} passed, ${counts.failed} failed, ${counts.expected} differ, in ${seconds} s`,
    );
    if (counts.hashes.all > 0)
      console.log(`${name}: rule hashes equal: ${counts.hashes.equal} of ${counts.hashes.all}`);
  }
  const equal = percentEqual(name, counts);
  console.log(`golden: ${name}: ${equal.toFixed(1)} % equal of what is not demanded to differ, want ${WANTED_PERCENT}`);
  if (equal < WANTED_PERCENT) total.failed++;
  // An exception that nothing needs any more would hide the next mistake.
  const idle = exceptionsOf(name).length - counts.expected;
  if (idle > 0) console.log(`golden: ${name}: at least ${idle} of its lines in test/golden-exceptions.txt can go`);
}
console.log(`golden: ${total.passed} passed, ${total.failed} failed, ${total.expected} skipped`);
process.exitCode = total.failed === 0 ? 0 : 1;

function exceptionsOf(suite: string): string[] {
  return readFileSync(exceptions, "utf8")
    .split("\n")
    .filter((line) => line.startsWith(`${suite}:`));
}

/** A line may stand for several checks, so this is at least what it says. */
function percentEqual(suite: string, { passed, failed, expected }: Counts): number {
  const demanded = exceptionsOf(suite).filter((line) => line.includes("# demanded: ")).length;
  const comparable = passed + failed + Math.max(0, expected - demanded);
  return comparable === 0 ? 0 : (100 * passed) / comparable;
}

interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly expected: number;
  readonly hashes: { readonly equal: number; readonly all: number };
}

function replay(name: string, suite: Suite): Promise<Counts> {
  if (suite.later !== undefined) return checkLater(suite.later, suite.drive);
  return suite.parts === undefined ? check(name, suite.drive) : checkInParts(name, suite);
}

/** The checker reads a suite's recordings from a folder of its name: here a link to those of the later version. */
async function checkLater(suite: string, drive: readonly string[]): Promise<Counts> {
  const work = mkdtempSync(join(tmpdir(), "golden-later-"));
  try {
    symlinkSync(join(recordings, suite, "master"), join(work, suite));
    return await check(suite, ["--dir", work, ...drive], "/dev/null");
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The suite's folder dealt out to several checkers, each with a folder of links of its own. */
async function checkInParts(suite: string, { drive, parts }: Suite): Promise<Counts> {
  const { folder, count } = parts ?? { folder: suite, count: 1 };
  const work = mkdtempSync(join(tmpdir(), "golden-parts-"));
  try {
    const all = readdirSync(join(recordings, folder)).sort();
    const running = Array.from({ length: count }, (_, part) => {
      const dir = join(work, String(part));
      mkdirSync(join(dir, folder), { recursive: true });
      for (const name of readdirSync(join(recordings, folder, "..")))
        if (!existsSync(join(dir, folder, "..", name)))
          symlinkSync(join(recordings, folder, "..", name), join(dir, folder, "..", name));
      for (const [i, name] of all.entries())
        if (i % count === part) symlinkSync(join(recordings, folder, name), join(dir, folder, name));
      return check(suite, ["--dir", dir, ...drive]);
    });
    const counts = await Promise.all(running);
    const sum = (of: (each: Counts) => number) => counts.reduce((before, each) => before + of(each), 0);
    return {
      passed: sum((each) => each.passed),
      failed: sum((each) => each.failed),
      expected: sum((each) => each.expected),
      hashes: { equal: sum((each) => each.hashes.equal), all: sum((each) => each.hashes.all) },
    };
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * The checker counts expected differences against its percentage. Where the original crashes or misreads its input
 * ours must differ, so the percentage is taken here (`percentEqual`), and from the checker only that nothing but what
 * test/golden-exceptions.txt names differs.
 */
function check(suite: string, drive: readonly string[], except = exceptions): Promise<Counts> {
  const args = [join(recordings, "check.ts"), suite, "--except", except, "--want", "1", ...drive];
  // Each case has an etcd of its own; what it writes need not survive a power cut.
  const memory = existsSync("/dev/shm") ? { TMPDIR: "/dev/shm" } : {};
  return new Promise((resolve, reject) => {
    const child = spawn("unshare", [...APART, process.execPath, ...args], {
      cwd: root,
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, ...memory },
    });
    let output = "";
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString();
      process.stdout.write(chunk);
    });
    child.on("error", reject);
    child.on("close", (code) => {
      const counts = new RegExp(`^${suite}: (\\d+) passed, (\\d+) failed, (\\d+) differ`, "m").exec(output);
      const hashes = /^rule hashes equal: (\d+) of (\d+)/m.exec(output);
      resolve({
        passed: Number(counts?.[1] ?? 0),
        failed: Math.max(Number(counts?.[2] ?? 0), code === 0 ? 0 : 1),
        expected: Number(counts?.[3] ?? 0),
        hashes: { equal: Number(hashes?.[1] ?? 0), all: Number(hashes?.[2] ?? 0) },
      });
    });
  });
}
