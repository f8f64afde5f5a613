// Writes docs/reference from the declarations in the source (`make reference`). A unit test fails if a page is out of date.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { commandsPage, exitCodesPage } from "./reference/commands.ts";
import { environmentPage } from "./reference/environment.ts";
import { felixConfigurationPage } from "./reference/felix-configuration.ts";
import { metricsPage } from "./reference/metrics.ts";
import { resourcePages } from "./reference/resources.ts";

const folder = join(import.meta.dir, "../docs/reference");

const INDEX = `# Reference

\`make reference\` generates these pages from the source, and a unit test fails if they are out of date.

| Page | Contents |
|---|---|
| [Resources](resources/README.md) | every kind of resource with its fields |
| [Felix configuration](felix-configuration.md) | every setting of Felix, and whether it has an effect |
| [Environment variables](environment.md) | every environment variable of every program, and Typha's settings |
| [Metrics](metrics.md) | every Prometheus metric |
| [Commands](commands.md) | the help text of every program and command |
| [Exit codes](exit-codes.md) | the meaning of every exit code |
`;

/** Contents by path below docs/reference. */
export async function referencePages(): Promise<ReadonlyMap<string, string>> {
  const resources = [...(await resourcePages())].map(([name, page]): [string, string] => [`resources/${name}`, page]);
  return new Map([
    ["README.md", INDEX],
    ["felix-configuration.md", felixConfigurationPage()],
    ["environment.md", environmentPage()],
    ["metrics.md", metricsPage()],
    ["commands.md", await commandsPage()],
    ["exit-codes.md", await exitCodesPage()],
    ...resources,
  ]);
}

/** Returns the paths below docs/reference that `make reference` would change or remove. */
export async function outdatedPages(): Promise<readonly string[]> {
  const pages = await referencePages();
  const existing = new Set(
    readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".md")),
  );
  const isCurrent = (path: string) =>
    existing.has(path) && readFileSync(join(folder, path), "utf8") === pages.get(path);
  return [...new Set([...pages.keys(), ...existing])].filter((path) => !isCurrent(path));
}

if (import.meta.main) {
  const pages = await referencePages();
  rmSync(folder, { recursive: true, force: true });
  for (const [path, page] of pages) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), page);
  }
  console.log(`reference: wrote ${pages.size} pages to docs/reference`);
}
