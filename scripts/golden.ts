// Replays the recordings of Calico on dist/ with the checker next to them. The recordings are not part of this project:
// without `../shared/golden` nothing is replayed.
//
//   bun scripts/golden.ts [SUITE …]     all suites, or the named ones
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hasRecordings, recordings, type Suite, suites } from "./golden-suites.ts";

/** The minimum percentage of equal checks. Checks that must differ ("demanded") do not count. */
const WANTED_PERCENT = 99;
const root = join(import.meta.dir, "..");
const exceptions = join(root, "test/golden-exceptions.txt");

const named = process.argv.slice(2);
const unknown = named.filter((name) => !Object.hasOwn(suites, name));
if (unknown.length > 0) {
  console.error(`golden: unknown suite ${unknown.join(", ")}, want some of ${Object.keys(suites).join(", ")}`);
  process.exit(2);
}
if (!hasRecordings) {
  console.log("golden: no recordings next to this checkout (../shared/golden), nothing to replay");
  console.log("golden: 0 passed, 0 failed, 1 skipped");
  process.exit(0);
}
if (process.getuid?.() !== 0) {
  console.log("golden: replaying the recordings requires root, for network namespaces");
  console.log("golden: 0 passed, 0 failed, 1 skipped");
  process.exit(0);
}

/** The agents write state, such as the MTU, to these folders, so they get temporary ones. */
const MOUNT_PRIVATE_FOLDERS = `for folder in /var/lib/calico /var/run/calico; do
  mkdir -p $folder && mount -t tmpfs calico-golden $folder || exit; done; exec "$0" "$@"`;
const UNSHARE_ARGS = ["--mount", "--propagation", "slave", "sh", "-c", MOUNT_PRIVATE_FOLDERS];

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
  console.log(
    `golden: ${name}: ${equal.toFixed(1)} % of the checks that need not differ are equal, want ${WANTED_PERCENT}`,
  );
  if (equal < WANTED_PERCENT) total.failed++;
  // An exception that is no longer needed would hide new differences.
  const unusedExceptions = exceptionsOf(name).length - counts.expected;
  if (unusedExceptions > 0)
    console.log(
      `golden: ${name}: at least ${unusedExceptions} of its lines in test/golden-exceptions.txt are not needed`,
    );
}
console.log(`golden: ${total.passed} passed, ${total.failed} failed, ${total.expected} skipped`);
process.exitCode = total.failed === 0 ? 0 : 1;

function exceptionsOf(suite: string): string[] {
  return readFileSync(exceptions, "utf8")
    .split("\n")
    .filter((line) => line.startsWith(`${suite}:`));
}

/** Returns a lower bound, because one line of the exceptions may apply to several checks. */
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

/** The checker reads a suite from the folder with its name. Here this is a link to the recordings of the later version. */
async function checkLater(suite: string, drive: readonly string[]): Promise<Counts> {
  const work = mkdtempSync(join(tmpdir(), "golden-later-"));
  try {
    symlinkSync(join(recordings, suite, "master"), join(work, suite));
    return await check(suite, ["--dir", work, ...drive], "/dev/null");
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Distributes the recordings of a suite to several checkers, each with its own folder of links. */
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
 * Runs the checker. Its percentage counts expected differences as failures. But where Calico crashes or misreads its input,
 * calico-ts must differ, so `percentEqual` computes the percentage, and the checker verifies only that nothing differs except
 * for the checks in test/golden-exceptions.txt.
 */
function check(suite: string, drive: readonly string[], except = exceptions): Promise<Counts> {
  const args = [join(recordings, "check.ts"), suite, "--except", except, "--want", "1", ...drive];
  // Each case has its own etcd, whose data need not survive a power failure.
  const memory = existsSync("/dev/shm") ? { TMPDIR: "/dev/shm" } : {};
  return new Promise((resolve, reject) => {
    const child = spawn("unshare", [...UNSHARE_ARGS, process.execPath, ...args], {
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
