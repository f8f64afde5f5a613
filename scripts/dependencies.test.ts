// Checks that docs/dependencies.md lists exactly the packages that package.json, website/package.json and scripts/setup.sh
// install, with reasons.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const read = (file: string) => readFileSync(join(root, file), "utf8");
const named = new Set(
  [...read("docs/dependencies.md").matchAll(/^\| (\*\*.*?) \| .+ \|$/gm)].flatMap(([, cell = ""]) =>
    [...cell.matchAll(/\*\*([^*]+)\*\*/g)].map(([, name = ""]) => name.toLowerCase()),
  ),
);

test("every Debian package that setup installs has a reason in docs/dependencies.md", () => {
  const [, list = ""] = /debian_packages=\(([^)]*)\)/.exec(read("scripts/setup.sh")) ?? [];
  const packages = [...list.matchAll(/(\S+):\S+/g)].map(([, name = ""]) => name);
  expect(packages.length).toBeGreaterThan(20);
  expect(packages.filter((name) => !named.has(name))).toEqual([]);
});

test("every npm package has a reason in docs/dependencies.md, and an exact version", () => {
  const parse = (file: string) => JSON.parse(read(file)) as Record<string, Record<string, string>>;
  const { dependencies, devDependencies } = parse("package.json");
  const packages = { ...dependencies, ...devDependencies, ...parse("website/package.json")["devDependencies"] };
  const known = (name: string) => named.has(name) || named.has(name.replace("@biomejs/", ""));
  expect(Object.keys(packages).filter((name) => !known(name))).toEqual([]);
  expect(Object.values(packages).filter((version) => !/^\d+\.\d+\.\d+$/.test(version))).toEqual([]);
});
