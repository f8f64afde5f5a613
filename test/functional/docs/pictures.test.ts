// Tests that the pictures in the README show the current output of the commands, apart from durations and addresses.
import { beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PICTURES, scenes, takePictures } from "../../../scripts/pictures.ts";
import { pictureText } from "../../../scripts/terminal-picture.ts";

const canRun = process.getuid?.() === 0 && existsSync(join(import.meta.dir, "../../../dist/calico"));
if (!canRun) console.error("PICTURE TESTS SKIPPED: they need root and the executable (make build)");
const suite = canRun ? test : test.skip; // needs root and the executable

let current: ReadonlyMap<string, string> = new Map();
beforeAll(() => {
  if (canRun) current = takePictures("testpics");
}, 120_000);

const normalize = (svg: string): string =>
  pictureText(svg)
    .replaceAll(/\b\d+\.\d+ s\b/g, "N s")
    .replaceAll(/\b10(\.\d+){3}\b/g, "ADDRESS");

for (const { file, command } of scenes)
  suite(`docs/pictures/${file} shows the output of ${command} (make pictures)`, () => {
    expect(normalize(readFileSync(join(PICTURES, file), "utf8"))).toBe(normalize(current.get(file) ?? ""));
  });
