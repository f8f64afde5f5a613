// Checks the threat model in docs/security.md: each "no" refers to an existing test, and each link has a target.
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const folder = join(import.meta.dir, "../docs");
const text = readFileSync(join(folder, "security.md"), "utf8");
const model = text.slice(text.indexOf("## Threat model"), text.indexOf("### Red team"));

interface Link {
  readonly path: string;
  /** Text that the file contains, usually a part of a test's name. */
  readonly title: string | undefined;
}
const linksOf = (markdown: string): readonly Link[] =>
  [...markdown.matchAll(/\]\(([^)\s"]+)(?: "([^"]*)")?\)/g)].map(([, path = "", title]) => ({ path, title }));

const rows = model
  .split("\n")
  .filter((line) => line.startsWith("| ") && !line.startsWith("| attempt |"))
  .map((line) => {
    const [attempt = "", possible = "", proof = ""] = line.slice(2).split(" | ");
    return { attempt, possible, proof };
  });

test("every row states whether an attack is possible, and an impossible attack refers to a test", () => {
  expect(rows.length).toBeGreaterThan(30);
  const isTest = ({ path }: Link) => /^\.\.\/(src|test)\/.*\.test\.ts$/.test(path) && existsSync(join(folder, path));
  const faults = rows.filter(
    ({ possible, proof }) =>
      !["yes", "no"].includes(possible) || (possible === "no" && !linksOf(proof).some((link) => isTest(link))),
  );
  expect(faults.map(({ attempt }) => attempt)).toEqual([]);
});

test("every link leads to an existing file, and the tests in it exist", () => {
  const files = linksOf(text).filter(({ path }) => !path.startsWith("#"));
  const missing = files.filter(({ path, title }) => {
    const file = join(folder, path.split("#")[0] ?? "");
    return !existsSync(file) || (title !== undefined && !readFileSync(file, "utf8").includes(title));
  });
  expect(missing).toEqual([]);
});

test("every link inside the page leads to one of its headings", () => {
  const headings = new Set(
    [...text.matchAll(/^#+ (.*)$/gm)].map(
      ([, heading = ""]) =>
        `#${heading
          .toLowerCase()
          .replaceAll(/[^\w -]/g, "")
          .replaceAll(" ", "-")}`,
    ),
  );
  const inside = linksOf(text)
    .map(({ path }) => path)
    .filter((path) => path.startsWith("#"));
  expect(inside.filter((path) => !headings.has(path))).toEqual([]);
});
