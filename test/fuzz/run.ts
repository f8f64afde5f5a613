// Fuzzes the parsers of untrusted bytes, two targets at a time:
//   bun test/fuzz/run.ts [--seconds=10] [--target=NAME] [--seed=N]
// Prints a table of executions and findings, and one line for scripts/test.ts: a target with findings has failed.
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { runTarget, saveFinding, type TargetResult } from "./driver.ts";
import { TARGETS } from "./targets/index.ts";

const AT_A_TIME = 2;

const { values } = parseArgs({
  options: { seconds: { type: "string" }, target: { type: "string" }, seed: { type: "string" } },
});
const seconds = Number(values.seconds || 10);
const seed = Number(values.seed || Math.floor(Math.random() * 2 ** 32));
const names = TARGETS.filter((name) => !values.target || values.target.split(",").includes(name));
if (names.length === 0 || !(seconds > 0) || !Number.isInteger(seed)) {
  console.error(`fuzz: want --seconds=N --seed=N and --target= one of ${TARGETS.join(", ")}`);
  process.exit(2);
}
console.log(`fuzz: ${names.length} targets, ${seconds} s each, seed ${seed}`);
console.log(
  `${"target".padEnd(24)}${"executions".padStart(12)}${"per second".padStart(12)}${"accepted".padStart(10)}  findings`,
);
const queue = names.values();
const results: TargetResult[] = [];
await Promise.all(Array.from({ length: AT_A_TIME }, fuzzNext));
const failed = results.filter(({ findings }) => findings.length > 0).length;
const executions = results.reduce((sum, result) => sum + result.executions, 0);
console.log(`fuzz: ${executions.toLocaleString("en")} executions; repeat with SEED=${seed}`);
console.log(`${results.length - failed} passed, ${failed} failed, 0 skipped`);
process.exitCode = failed === 0 ? 0 : 1;

async function fuzzNext(): Promise<void> {
  for (const target of queue) {
    const corpus = join(import.meta.dir, "corpus", target);
    const result = await runTarget({ target, seconds, seed, corpus });
    results.push(result);
    print(result);
  }
}

function print({ target, executions, accepted, seconds: taken, findings }: TargetResult): void {
  const rate = Math.round(executions / Math.max(taken, 0.001)).toLocaleString("en");
  const share = executions === 0 ? "-" : `${Math.round((100 * accepted) / executions)} %`;
  const count = executions.toLocaleString("en");
  console.log(
    `${target.padEnd(24)}${count.padStart(12)}${rate.padStart(12)}${share.padStart(10)}  ${findings.length === 0 ? "none" : findings.length}`,
  );
  for (const finding of findings) {
    const path = saveFinding(join(import.meta.dir, "../../.cache/fuzz", target), finding);
    console.log(`  ${finding.kind}: ${finding.what}\n    input: ${relative(process.cwd(), path)}`);
  }
}
