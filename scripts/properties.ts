// Runs every property test with a multiple of its usual number of runs and prints the seeds.
//
//   bun scripts/properties.ts                    100 times under src/ and scripts/, 10 times under test/
//   bun scripts/properties.ts --runs=30          30 times everywhere
//   bun scripts/properties.ts src/ipam …         only files below these paths
import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

const root = join(import.meta.dir, "..");
const factors: Readonly<Record<string, number>> = { src: 100, scripts: 100, test: 10 };

const { values: flags, positionals: wanted } = parseArgs({
  options: { runs: { type: "string" } },
  allowPositionals: true,
});
const given = flags.runs === undefined || flags.runs === "" ? undefined : Number(flags.runs);
if (given !== undefined && !(given > 0)) {
  console.error(`properties: --runs=${flags.runs} is not a positive number`);
  process.exit(2);
}

let hasFailed = false;
for (const [folder, usual] of Object.entries(factors)) {
  const files = propertyTests(folder).filter(
    (file) => wanted.length === 0 || wanted.some((path) => file.startsWith(path)),
  );
  if (files.length === 0) continue;
  const factor = given ?? usual;
  console.log(`== ${folder}: ${files.length} files, ${factor} times the usual runs`);
  if ((await run(files, factor)) !== 0) hasFailed = true;
}
process.exitCode = hasFailed ? 1 : 0;

/** Test files that use fast-check. */
function propertyTests(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => `${folder}/${name}`)
    .filter((file) => readFileSync(join(root, file), "utf8").includes('from "fast-check"'))
    .toSorted();
}

function run(files: readonly string[], factor: number): Promise<number> {
  const args = ["test", "--preload=./scripts/property-factor.ts", `--timeout=${6 * 3_600_000}`];
  args.push(...files.map((file) => `./${file}`));
  const env = { ...process.env, CALICO_PROPERTY_FACTOR: String(factor) };
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: "inherit", env });
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? 1));
  });
}
