// Checks that docs/ARCHITECTURE.md names every module, and that every file it names exists.
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const page = readFileSync(join(root, "docs/ARCHITECTURE.md"), "utf8");
const src = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" });
const scripts = readdirSync(join(root, "scripts")).map((name) => `scripts/${name}`);

test("every file that the page names exists", () => {
  const files = [...page.matchAll(/(?<![\w*/-])[a-z][\w/-]*\.ts\b/g)].map(([name]) => name.replace(/^src\//, ""));
  expect(files.length).toBeGreaterThan(15);
  expect(files.filter((name) => name !== "index.ts" && ![...src, ...scripts].includes(name))).toEqual([]);
});

test("the page lists exactly the modules that exist", () => {
  const [, list = ""] = /\n( {4}main\.ts[\s\S]*?)\n\n/.exec(page) ?? [];
  const named = [...list.matchAll(/^ {4}(?:programs|engines) +(.*)$/gm)].flatMap(([, words = ""]) => words.split(/ +/));
  const modules = new Set(src.flatMap((file) => (file.includes("/") ? [file.split("/")[0] ?? ""] : [])));
  expect([...named, "kernel", "model", "lib"].sort()).toEqual([...modules].sort());
});
