// Runs the benchmarks of bench/, one process each, so that none warms or burdens the next.
//
//   bun scripts/bench.ts [TEXT …]     all, or those whose file name contains one of the texts
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const folder = join(root, "bench");
const wanted = process.argv.slice(2).flatMap((word) => word.split(","));
const files = readdirSync(folder)
  .filter((name) => name.endsWith(".ts") && (wanted.length === 0 || wanted.some((text) => name.includes(text))))
  .sort();
if (files.length === 0) {
  console.error(`bench: nothing in bench/ is called ${wanted.join(" or ")}`);
  process.exit(2);
}

const failed: string[] = [];
for (const file of files) {
  console.log(`\n== ${file.replace(/\.ts$/, "")}`);
  const { status } = spawnSync(process.execPath, [join(folder, file)], { cwd: root, stdio: "inherit" });
  if (status !== 0) failed.push(file);
}
if (failed.length > 0) console.error(`\nbench: ${failed.join(", ")} failed`);
process.exitCode = failed.length === 0 ? 0 : 1;
