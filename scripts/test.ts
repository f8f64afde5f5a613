// Runs the test stages and prints the total result as the last line:
//   N passed, N failed, N skipped
//
//   bun scripts/test.ts                   all stages
//   bun scripts/test.ts unit …            only the named ones
//   bun scripts/test.ts --root=DIR unit   the tests of another folder
//
// Only tests under test/ (packets, processes, clocks) are repeated after a failure: once, after all other tests, with
// nothing else running. A test that passes then is reported as flaky. Unit tests, property tests, fuzz targets and recordings are never
// repeated: a property that fails for one seed and passes for the next has found a bug.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { hasRecordings, suites } from "./golden-suites.ts";
import {
  type Counts,
  closingLine,
  countResults,
  exitCode,
  type FlakyTest,
  failedFiles,
  isRepeatable,
  mergeRepetition,
  parseClosingLine,
  parseReport,
  renderSummary,
  type TestResult,
  withMissingFiles,
} from "./test-results.ts";

interface StageResult {
  readonly counts: Counts;
  /** Results of the files to repeat at the end; `counts` does not contain them. */
  readonly toRepeat?: readonly TestResult[];
}
type Output = (text: string) => void;
interface Stage {
  readonly name: string;
  readonly what: string;
  readonly run: (out: Output) => Promise<StageResult>;
}

const { values: flags, positionals: wanted } = parseArgs({
  options: { root: { type: "string" } },
  allowPositionals: true,
});
const root = resolve(flags.root ?? join(import.meta.dir, ".."));
const reports = join(root, ".cache/reports");

const before: readonly Stage[] = [
  { name: "check", what: "types, lint, format, import direction", run: (out) => script(out, "check.ts") },
  { name: "build", what: "the executable", run: (out) => script(out, "build.ts") },
];
/** These stages mostly wait for packets and clocks, so two of them run concurrently, the longest first. */
const between: readonly Stage[] = [
  {
    name: "unit",
    what: "unit and property tests",
    run: (out) => unitTests(out, "unit", ["src", "scripts", "test/fuzz"]),
  },
  ...folders("functional", "kubernetes"),
  ...(hasRecordings ? Object.keys(suites).map((suite) => golden(suite)) : [golden()]),
];
const after: readonly Stage[] = [
  {
    name: "fuzz",
    what: "ten seconds for every parser of foreign bytes",
    // A fixed seed, so that a commit that passed once passes again. `make fuzz` draws a new seed for each run.
    run: (out) => script(out, "../test/fuzz/run.ts", ["--seed=1"]),
  },
  {
    name: "parity",
    what: "docs/parity.md is up to date",
    run: (out) => script(out, "parity.ts", ["--check"]),
  },
];
const stages = [...before, ...between, ...after];

const unknown = wanted.filter((name) => !stages.some((stage) => stage.name === name));
if (unknown.length > 0) {
  console.error(`test: unknown stage ${unknown.join(", ")}, want some of ${stages.map((s) => s.name).join(", ")}`);
  process.exit(2);
}
rmSync(reports, { recursive: true, force: true });
mkdirSync(reports, { recursive: true });
let total: Counts = { passed: 0, failed: 0, skipped: 0 };
const toRepeat: TestResult[] = [];
await walk(before, write);
// The output of the first of the two is printed immediately, that of the other after each stage.
const queue = between.values();
await Promise.all([walk(queue, write), walk(queue, undefined)]);
await walk(after, write);
const flaky = await repeatFailedFiles();
console.log(`\n${renderSummary(total, flaky)}`);
process.exitCode = exitCode(total, flaky);

function write(text: string): void {
  process.stdout.write(text);
}

function add(counts: Counts): void {
  total = {
    passed: total.passed + counts.passed,
    failed: total.failed + counts.failed,
    skipped: total.skipped + counts.skipped,
  };
}

async function walk(stages: Iterable<Stage>, live: Output | undefined): Promise<void> {
  for (const stage of stages) {
    if (wanted.length > 0 && !wanted.includes(stage.name)) continue;
    const kept: string[] = [];
    const out = live ?? ((text: string) => void kept.push(text));
    out(`\n== ${stage.name}: ${stage.what}\n`);
    const started = performance.now();
    const { counts, toRepeat: repeated = [] } = await stage.run(out);
    add(counts);
    toRepeat.push(...repeated);
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    const later = repeated.length > 0 ? `, to be repeated: ${failedFiles(repeated).join(" ")}` : "";
    out(`== ${stage.name}: ${closingLine(counts)} in ${seconds} s${later}\n`);
    write(kept.join(""));
  }
}

/** Runs the failed files of the stages under test/ once more, when nothing else uses the machine. */
async function repeatFailedFiles(): Promise<readonly FlakyTest[]> {
  const files = failedFiles(toRepeat);
  if (files.length === 0) return [];
  write(`\n== repeated, alone: ${files.join(" ")}\n`);
  const { results, flaky } = mergeRepetition(toRepeat, await runTests(write, "repeated", files));
  add(countResults(results));
  write(`== repeated: ${closingLine(countResults(results))}, ${flaky.length} flaky\n`);
  return flaky;
}

/** Returns one stage per folder of test/ that contains tests, the given ones first. */
function folders(...first: readonly string[]): Stage[] {
  const folder = join(root, "test");
  if (!existsSync(folder)) return [];
  const apart = new Set(["conformance", "chaos", "soak", "vm", "e2e", "fuzz"]); // their own make targets
  const found = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !apart.has(entry.name) && testFiles(`test/${entry.name}`).length > 0)
    .map((entry) => entry.name);
  return [...first.filter((name) => found.includes(name)), ...found.filter((name) => !first.includes(name))].map(
    (name) => ({
      name,
      what: `tests of test/${name}`,
      run: (out) => functionalTests(out, name, `test/${name}`),
    }),
  );
}

function golden(...suite: readonly string[]): Stage {
  const what = ["recordings of Calico", ...suite].join(", ");
  return { name: "golden", what, run: (out) => script(out, "golden.ts", suite) };
}

function testFiles(folder: string): string[] {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => `${folder}/${name}`)
    .toSorted();
}

async function unitTests(out: Output, name: string, folders: readonly string[]): Promise<StageResult> {
  return { counts: countResults(await runTests(out, name, folders.flatMap(testFiles))) };
}

async function functionalTests(out: Output, name: string, folder: string): Promise<StageResult> {
  const results = await runTests(out, name, testFiles(folder));
  const repeatable = failedFiles(results).filter((file) => isRepeatable(file, readFileSync(join(root, file), "utf8")));
  const repeated = new Set(repeatable);
  return {
    counts: countResults(results.filter(({ file }) => !repeated.has(file))),
    toRepeat: results.filter(({ file }) => repeated.has(file)),
  };
}

async function runTests(out: Output, name: string, files: readonly string[]): Promise<readonly TestResult[]> {
  const report = join(reports, `${name}.xml`);
  const args = ["test", "--reporter=junit", `--reporter-outfile=${report}`, "--timeout=60000"];
  args.push("--max-concurrency=4", ...files.map((file) => `./${file}`)); // only tests that are marked as concurrent
  const code = await execute(args, out);
  const results = withMissingFiles(existsSync(report) ? parseReport(readFileSync(report, "utf8")) : [], files);
  if (code === 0 || failedFiles(results).length > 0) return results;
  const failure = `bun test exited with code ${code}, and no test failed`;
  return [...results, { file: files[0] ?? name, name: "(run)", outcome: "failed", failure }];
}

/** Returns the counts that a script prints in its last line; without such a line, the script counts as one test. */
async function script(out: Output, name: string, args: readonly string[] = []): Promise<StageResult> {
  let tail = "";
  const code = await execute([join("scripts", name), ...args], (text) => {
    tail = (tail + text).slice(-2000);
    out(text);
  });
  const counts = parseClosingLine(tail) ?? { passed: code === 0 ? 1 : 0, failed: 0, skipped: 0 };
  return { counts: { ...counts, failed: counts.failed > 0 || code === 0 ? counts.failed : 1 } };
}

function execute(args: readonly string[], out: Output): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => out(chunk.toString()));
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? 1));
  });
}
