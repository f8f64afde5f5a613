// `make docs`: builds the documentation as a static website in dist/docs. VitePress and its packages are installed in website/
// only when this runs; nothing else needs them.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { prepareSite } from "./documents/site.ts";

const root = join(import.meta.dir, "..");
const website = join(root, "website");
const staging = join(website, "pages");
const output = join(root, "dist/docs");

install();
stage();
run(join(website, "node_modules/.bin/vitepress"), ["build", "."]);
const external = findExternalResources();
if (external.length > 0) {
  console.error(`docs: pages load resources of other hosts: ${external.join(", ")}`);
  process.exit(1);
}
console.log(`docs: wrote ${pagesIn(output).length} pages to dist/docs; serve the folder with any web server`);

function install(): void {
  if (existsSync(join(website, "node_modules/.bin/vitepress"))) return;
  run(process.execPath, ["install", "--frozen-lockfile", "--silent"]);
}

function stage(): void {
  const { pages, pictures, navigation } = prepareSite(root);
  rmSync(staging, { recursive: true, force: true });
  for (const [path, text] of pages) {
    mkdirSync(dirname(join(staging, path)), { recursive: true });
    writeFileSync(join(staging, path), text);
  }
  for (const [from, to] of pictures) cpSync(join(root, from), join(staging, to));
  writeFileSync(join(staging, "navigation.json"), JSON.stringify(navigation));
}

function run(command: string, args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: website, encoding: "utf8" });
  if (status === 0) return;
  console.error(`docs: ${command} failed\n${stdout}${stderr}`);
  process.exit(1);
}

function pagesIn(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".html"));
}

/** Scripts, styles, fonts and pictures must come from the site itself; ordinary links may lead anywhere. */
function findExternalResources(): readonly string[] {
  const LOADED = /<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="((?:https?:)?\/\/[^"]+)"/g;
  return [
    ...new Set(
      pagesIn(output).flatMap((path) =>
        [...readFileSync(join(output, path), "utf8").matchAll(LOADED)].map(([, url = ""]) => url),
      ),
    ),
  ];
}
