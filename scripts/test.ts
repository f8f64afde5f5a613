// Runs the test stages and ends with one plain line over everything that was tested:
//   N passed, N failed, N skipped
//
//   bun scripts/test.ts            all stages
//   bun scripts/test.ts unit …     only the named ones
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

interface Count {
  passed: number;
  failed: number;
  skipped: number;
}
interface Stage {
  readonly name: string;
  readonly what: string;
  readonly run: () => Promise<Count>;
}

const root = join(import.meta.dir, "..");
const reports = join(root, ".cache/reports");

const stages: readonly Stage[] = [
  { name: "check", what: "types, lint, format, import direction", run: () => script("check.ts") },
  { name: "unit", what: "unit and property tests", run: () => bunTest("unit", ["src", "scripts"]) },
  { name: "build", what: "the executable", run: () => script("build.ts") },
  ...suites(),
  { name: "golden", what: "recordings of the original system", run: () => script("golden.ts") },
  { name: "parity", what: "docs/parity.md says what the tests say", run: () => script("parity.ts", ["--check"]) },
];

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !stages.some((stage) => stage.name === name));
if (unknown.length > 0) {
  console.error(`test: no stage ${unknown.join(", ")}; there are ${stages.map((s) => s.name).join(", ")}`);
  process.exit(2);
}
rmSync(reports, { recursive: true, force: true });
mkdirSync(reports, { recursive: true });
const total: Count = { passed: 0, failed: 0, skipped: 0 };
for (const stage of stages) {
  if (wanted.length > 0 && !wanted.includes(stage.name)) continue;
  console.log(`\n== ${stage.name}: ${stage.what}`);
  const started = performance.now();
  const count = await stage.run();
  total.passed += count.passed;
  total.failed += count.failed;
  total.skipped += count.skipped;
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`== ${stage.name}: ${describe(count)} in ${seconds} s`);
}
console.log(`\n${describe(total)}`);
process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1;

function describe(count: Count): string {
  const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : "";
  return `${count.passed} passed, ${count.failed} failed${skipped}`;
}

/** One stage per folder of test/ that holds tests: functional, interop, … */
function suites(): Stage[] {
  const folder = join(root, "test");
  if (!existsSync(folder)) return [];
  const apart = new Set(["conformance", "chaos", "soak", "vm", "e2e"]); // their own make targets
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !apart.has(entry.name) && holdsTests(join(folder, entry.name)))
    .map((entry) => ({
      name: entry.name,
      what: `tests of test/${entry.name}`,
      run: () => bunTest(entry.name, [`test/${entry.name}`]),
    }));
}

function holdsTests(folder: string): boolean {
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).some((name) => name.endsWith(".test.ts"));
}

async function bunTest(name: string, paths: readonly string[]): Promise<Count> {
  const first = await runTests(
    name,
    paths.map((path) => `./${path}/`),
  );
  if (first.count.failed === 0 || first.failedFiles.length === 0) return first.count;
  // Packets, processes and clocks share the machine with whatever else it does: a file that fails is tried once more,
  // alone, and said so. What fails twice is broken.
  console.log(`\n== ${name}: again, alone: ${first.failedFiles.join(" ")}`);
  const second = await runTests(
    `${name}-again`,
    first.failedFiles.map((file) => `./${file}`),
  );
  const recovered = Math.max(0, first.count.failed - second.count.failed);
  return { ...first.count, passed: first.count.passed + recovered, failed: second.count.failed };
}

async function runTests(name: string, paths: readonly string[]): Promise<{ count: Count; failedFiles: string[] }> {
  const report = join(reports, `${name}.xml`);
  const code = await execute(["test", "--reporter=junit", `--reporter-outfile=${report}`, "--timeout=60000", ...paths]);
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
async function script(name: string, args: readonly string[] = []): Promise<Count> {
  let tail = "";
  const code = await execute([join("scripts", name), ...args], (text) => (tail = (tail + text).slice(-2000)));
  const plain = [...tail.matchAll(/^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/gm)].at(-1);
  if (plain === undefined) return { passed: code === 0 ? 1 : 0, failed: code === 0 ? 0 : 1, skipped: 0 };
  const failed = Number(plain[2]);
  return { passed: Number(plain[1]), failed: failed > 0 || code === 0 ? failed : 1, skipped: Number(plain[3] ?? 0) };
}

function execute(args: readonly string[], watch: (text: string) => void = () => {}): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    for (const [stream, out] of [
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ] as const)
      stream.on("data", (chunk: Buffer) => {
        out.write(chunk);
        watch(chunk.toString());
      });
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? 1));
  });
}
