// Runs the benchmarks in bench/, each in its own process, so that they do not influence each other.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { type Call, commandsWith, type Grammar } from "../src/lib/command-line/command.ts";
import { programMain } from "../src/lib/command-line/run.ts";
import { UsageError } from "../src/lib/command-line/usage-error.ts";

const root = join(import.meta.dir, "..");
const folder = join(root, "bench");

const grammar = {
  arguments: [
    {
      name: "TEXT",
      isOptional: true,
      isRepeatable: true,
      about: "part of the file name of a benchmark; all if absent",
    },
  ],
} as const satisfies Grammar;

function run({ args }: Call<typeof grammar>): number {
  const wanted = args.TEXT.flatMap((word) => word.split(","));
  const files = readdirSync(folder)
    .filter((name) => name.endsWith(".ts") && (wanted.length === 0 || wanted.some((text) => name.includes(text))))
    .sort();
  if (files.length === 0) throw new UsageError(`no file in bench/ has ${wanted.join(" or ")} in its name`);
  const failed: string[] = [];
  for (const file of files) {
    console.log(`\n== ${file.replace(/\.ts$/, "")}`);
    const { status } = spawnSync(process.execPath, [join(folder, file)], { cwd: root, stdio: "inherit" });
    if (status !== 0) failed.push(file);
  }
  if (failed.length > 0) console.error(`\nbench: ${failed.join(", ")} failed`);
  return failed.length === 0 ? 0 : 1;
}

const command = commandsWith({})({
  name: "bun scripts/bench.ts",
  about: "Run benchmarks.",
  ...grammar,
  load: async () => ({ run }),
});
process.exitCode = await programMain(command)(process.argv.slice(2));
