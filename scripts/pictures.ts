// Draws pictures of a terminal for the README from real runs (`make pictures`). Each command runs in a pseudo-terminal
// (script(1)) in a new lab, and its output is drawn as SVG.
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { drawTerminal } from "./terminal-picture.ts";

const root = join(import.meta.dir, "..");
export const PICTURES = join(root, "docs/pictures");

/** In the order in which they are run. */
export const scenes = [
  { file: "lab-up.svg", command: "calico lab up" },
  { file: "demo.svg", command: "calico lab demo" },
] as const;

/**
 * Runs all scenes in a new lab and removes it.
 * @param lab its name. It becomes the default name, so that the output does not contain it.
 * @returns pictures by file
 */
export function takePictures(lab: string): ReadonlyMap<string, string> {
  run("calico lab down", lab);
  try {
    return new Map(
      scenes.map(({ file, command }) => [file, drawTerminal(`\x1b[2m$\x1b[0m ${command}\n${run(command, lab)}`)]),
    );
  } finally {
    run("calico lab down", lab);
  }
}

function run(command: string, lab: string): string {
  const { NO_COLOR: _, ...inherited } = process.env;
  const PATH = `${join(root, "dist")}:${process.env["PATH"]}`;
  const env = { ...inherited, CALICO_LAB: lab, PATH, TERM: "xterm" };
  const result = spawnSync("script", ["-qec", command, "/dev/null"], { env, encoding: "utf8", cwd: root });
  if (result.status !== 0) throw new Error(`${command}: exit ${result.status}\n${result.stdout}${result.stderr}`);
  return result.stdout.replaceAll("\r\n", "\n").trimEnd();
}

if (import.meta.main) {
  mkdirSync(PICTURES, { recursive: true });
  for (const [file, picture] of takePictures("pictures")) {
    writeFileSync(join(PICTURES, file), picture);
    console.log(`docs/pictures/${file}`);
  }
}
