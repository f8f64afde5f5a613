// Pictures of the terminal for the README, from real runs: `make pictures`. Each command runs on a terminal of its own
// (script(1)), in a lab of its own, and what it printed is drawn as SVG.
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { drawTerminal } from "./terminal-picture.ts";

const root = join(import.meta.dir, "..");
const folder = join(root, "docs/pictures");
const env = {
  ...process.env,
  CALICO_LAB: "pictures",
  PATH: `${join(root, "dist")}:${process.env["PATH"]}`,
  TERM: "xterm",
};

const scenes = [
  { file: "lab-up", command: "calico lab up" },
  { file: "demo", command: "calico lab demo" },
];

mkdirSync(folder, { recursive: true });
run("calico lab down");
try {
  for (const { file, command } of scenes) {
    writeFileSync(join(folder, `${file}.svg`), drawTerminal(`\x1b[2m$\x1b[0m ${command}\n${run(command)}`));
    console.log(`docs/pictures/${file}.svg`);
  }
} finally {
  run("calico lab down");
}

function run(command: string): string {
  const result = spawnSync("script", ["-qec", command, "/dev/null"], { env, encoding: "utf8", cwd: root });
  if (result.status !== 0) throw new Error(`${command}: exit ${result.status}\n${result.stdout}${result.stderr}`);
  return result.stdout.replaceAll("\r\n", "\n").trimEnd();
}
