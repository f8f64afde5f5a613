// docs/ARCHITECTURE.md is a street map: every corner it names is there, and it names every room.
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const page = readFileSync(join(root, "docs/ARCHITECTURE.md"), "utf8");
const src = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" });

test("every file of the map exists", () => {
  const files = [...page.matchAll(/(?<![\w*/-])[a-z][\w/-]*\.ts\b/g)].map(([name]) => name.replace(/^src\//, ""));
  expect(files.length).toBeGreaterThan(15);
  expect(files.filter((name) => !src.some((file) => file === name || file.endsWith(`/${name}`)))).toEqual([]);
});

test("every room is on the map, and every room of the map exists", () => {
  const [, list = ""] = /\n( {4}main\.ts[\s\S]*?)\n\n/.exec(page) ?? [];
  const named = [...list.matchAll(/^ {4}(?:programs|engines) +(.*)$/gm)].flatMap(([, words = ""]) => words.split(/ +/));
  const rooms = new Set(src.flatMap((file) => (file.includes("/") ? [file.split("/")[0] ?? ""] : [])));
  expect([...named, "kernel", "model", "lib"].sort()).toEqual([...rooms].sort());
});
