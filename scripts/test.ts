// Runs the test stages and ends with one plain line over everything that was tested:
//   N passed, N failed, N skipped
//
//   bun scripts/test.ts            all stages
//   bun scripts/test.ts unit …     only the named ones
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { areRecordingsThere, suites } from "./golden-suites.ts";

interface Count {
  passed: number;
  failed: number;
  skipped: number;
}
interface Result extends Count {
  /** Files to try once more, alone, when nothing else runs. */
  readonly again?: readonly string[];
}
type Output = (text: string) => void;
interface Stage {
  readonly name: string;
  readonly what: string;
  readonly run: (out: Output) => Promise<Result>;
  /** Tried once more, whole, when it fails beside others. */
  readonly mayRepeat?: boolean;
}

const root = join(import.meta.dir, "..");
const reports = join(root, ".cache/reports");

const before: readonly Stage[] = [
  { name: "check", what: "types, lint, format, import direction", run: (out) => script(out, "check.ts") },
  { name: "build", what: "the executable", run: (out) => script(out, "build.ts") },
];
/** Much of what these do is wait for packets and clocks, so two run side by side; the long ones begin. */
const between: readonly Stage[] = [
  { name: "unit", what: "unit and property tests", run: (out) => bunTest(out, "unit", ["src", "scripts"]) },
  ...folders("functional", "kubernetes"),
  ...(areRecordingsThere ? Object.keys(suites).map((suite) => golden(suite)) : [golden()]),
];
const after: readonly Stage[] = [
  {
    name: "parity",
    what: "docs/parity.md says what the tests say",
    run: (out) => script(out, "parity.ts", ["--check"]),
  },
];
const stages = [...before, ...between, ...after];

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !stages.some((stage) => stage.name === name));
if (unknown.length > 0) {
  console.error(`test: no stage ${unknown.join(", ")}; there are ${stages.map((s) => s.name).join(", ")}`);
  process.exit(2);
}
rmSync(reports, { recursive: true, force: true });
mkdirSync(reports, { recursive: true });
const total: Count = { passed: 0, failed: 0, skipped: 0 };
const again: string[] = [];
const repeats: Stage[] = [];
/** How many tests of those files failed. */
let failedTests = 0;
await walk(before, write);
// What the first of the two does is seen as it goes, the other's stage by stage.
const queue = between.values();
await Promise.all([walk(queue, write), walk(queue, undefined)]);
await walk(
  repeats.map((stage) => ({ ...stage, mayRepeat: false })),
  write,
);
await walk(after, write);
await tryAgain();
console.log(`\n${describe(total)}`);
process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1;

function write(text: string): void {
  process.stdout.write(text);
}

async function walk(stages: Iterable<Stage>, live: Output | undefined): Promise<void> {
  for (const stage of stages) {
    if (wanted.length > 0 && !wanted.includes(stage.name)) continue;
    const kept: string[] = [];
    const out = live ?? ((text: string) => void kept.push(text));
    out(`\n== ${stage.name}: ${stage.what}\n`);
    const started = performance.now();
    const { again: files = [], ...count } = await stage.run(out);
    again.push(...files);
    const isRepeated = count.failed > 0 && stage.mayRepeat === true;
    if (isRepeated) repeats.push(stage);
    for (const key of ["passed", "failed", "skipped"] as const) total[key] += isRepeated ? 0 : count[key];
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    const later = files.length > 0 || isRepeated ? `, to be tried again ${files.join(" ")}` : "";
    out(`== ${stage.name}: ${describe(count)} in ${seconds} s${later}\n`);
    write(kept.join(""));
  }
}

/**
 * Packets, processes and clocks share the machine with whatever else it does: a file that fails is tried once more when
 * nothing else runs, and said so. What fails twice is broken.
 */
async function tryAgain(): Promise<void> {
  if (again.length === 0) return;
  write(`\n== again, alone: ${again.join(" ")}\n`);
  const { count } = await runTests(
    write,
    "again",
    again.map((file) => `./${file}`),
  );
  const recovered = Math.max(0, failedTests - count.failed);
  total.passed += recovered;
  total.failed -= recovered;
  write(`== again: ${describe(count)}\n`);
}

function describe(count: Count): string {
  const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : "";
  return `${count.passed} passed, ${count.failed} failed${skipped}`;
}

/** One stage per folder of test/ that holds tests, the named ones first. */
function folders(...first: readonly string[]): Stage[] {
  const folder = join(root, "test");
  const apart = new Set(["conformance", "chaos", "soak", "vm", "e2e"]); // their own make targets
  const found = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !apart.has(entry.name) && holdsTests(join(folder, entry.name)))
    .map((entry) => entry.name);
  return [...first, ...found.filter((name) => !first.includes(name))].map((name) => ({
    name,
    what: `tests of test/${name}`,
    run: (out) => bunTest(out, name, [`test/${name}`]),
  }));
}

function golden(...suite: readonly string[]): Stage {
  const what = ["recordings of the original system", ...suite].join(", ");
  return { name: "golden", what, run: (out) => script(out, "golden.ts", suite), mayRepeat: true };
}

function holdsTests(folder: string): boolean {
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).some((name) => name.endsWith(".test.ts"));
}

async function bunTest(out: Output, name: string, paths: readonly string[]): Promise<Result> {
  const { count, failedFiles } = await runTests(
    out,
    name,
    paths.map((path) => `./${path}/`),
  );
  if (failedFiles.length > 0) failedTests += count.failed;
  return { ...count, again: failedFiles };
}

async function runTests(
  out: Output,
  name: string,
  paths: readonly string[],
): Promise<{ count: Count; failedFiles: string[] }> {
  const report = join(reports, `${name}.xml`);
  const args = ["test", "--reporter=junit", `--reporter-outfile=${report}`, "--timeout=60000"];
  args.push("--max-concurrency=4", ...paths); // of the tests of a file that say they can
  const code = await execute(args, out);
  if (!existsSync(report)) return { count: { passed: 0, failed: 1, skipped: 0 }, failedFiles: [] };
  const text = readFileSync(report, "utf8");
  const number = (element: string, attribute: string) =>
    Number(new RegExp(`\\b${attribute}="(\\d+)"`).exec(element)?.[1] ?? 0);
  const head = /<testsuites[^>]*>/.exec(text)?.[0] ?? "";
  const skipped = number(head, "skipped");
  const failed = number(head, "failures");
  const failedFiles = [...text.matchAll(/<testsuite [^>]*\bname="([^"]+\.test\.ts)"[^>]*>/g)]
    .filter(([element]) => number(element, "failures") > 0)
    .flatMap(([, file]) => file ?? []);
  // A file that fails to load counts no test: the exit code is what tells.
  const isBroken = failed === 0 && code !== 0;
  return {
    count: { passed: number(head, "tests") - failed - skipped, failed: isBroken ? 1 : failed, skipped },
    failedFiles,
  };
}

/** A script counts as the tests it reports on its last plain line, or as one. */
async function script(out: Output, name: string, args: readonly string[] = []): Promise<Result> {
  let tail = "";
  const code = await execute([join("scripts", name), ...args], (text) => {
    tail = (tail + text).slice(-2000);
    out(text);
  });
  const plain = [...tail.matchAll(/^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/gm)].at(-1);
  if (plain === undefined) return { passed: code === 0 ? 1 : 0, failed: code === 0 ? 0 : 1, skipped: 0 };
  const failed = Number(plain[2]);
  return { passed: Number(plain[1]), failed: failed > 0 || code === 0 ? failed : 1, skipped: Number(plain[3] ?? 0) };
}

function execute(args: readonly string[], out: Output): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => out(chunk.toString()));
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? 1));
  });
}
