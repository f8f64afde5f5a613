// The README's pictures show what the commands print today. Durations and addresses differ from run to run.
import { beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PICTURES, scenes, takePictures } from "../../../scripts/pictures.ts";
import { pictureText } from "../../../scripts/terminal-picture.ts";

const canRun = process.getuid?.() === 0 && existsSync(join(import.meta.dir, "../../../dist/calico"));
if (!canRun) console.error("PICTURE TESTS SKIPPED: they need root and the executable (make build)");
const suite = canRun ? test : test.skip; // needs root and the executable

let today: ReadonlyMap<string, string> = new Map();
beforeAll(() => {
  if (canRun) today = takePictures("testpics");
}, 120_000);

const form = (svg: string): string =>
  pictureText(svg)
    .replaceAll(/\b\d+\.\d+ s\b/g, "N s")
    .replaceAll(/\b10(\.\d+){3}\b/g, "ADDRESS");

for (const { file, command } of scenes)
  suite(`docs/pictures/${file} shows what ${command} prints (make pictures)`, () => {
    expect(form(readFileSync(join(PICTURES, file), "utf8"))).toBe(form(today.get(file) ?? ""));
  });
