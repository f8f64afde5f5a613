// Runs the pages that have `sh` blocks: all blocks of a page in one shell, in order. The lab has another name than on the page,
// and /tmp is a folder of the test, so that a run does not touch what a developer has there.
import { afterAll, describe, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pageCommands } from "../../../scripts/documents/page-commands.ts";
import { documentPaths } from "../../../scripts/documents/site.ts";
import { pageScript } from "./page-script.ts";

const root = join(import.meta.dir, "../../..");
const PAGES = documentPaths(root).filter(
  (path) => pageCommands(readFileSync(join(root, path), "utf8")).length > 0 && !path.startsWith("docs/reference/"),
);
const LAB = "docpage";
const isRoot = process.getuid?.() === 0;
const folder = mkdtempSync(join(tmpdir(), "calico-pages-"));

afterAll(() => {
  if (isRoot) spawnSync(join(root, "dist/calico"), ["lab", "down", "--name", LAB]);
  rmSync(folder, { recursive: true, force: true });
}, 60_000);

describe.skipIf(!isRoot)("commands of a page run in order", () => {
  for (const page of PAGES)
    test(page, () => {
      const text = readFileSync(join(root, page), "utf8")
        .replaceAll(/\bCALICO_LAB=\w+/g, `CALICO_LAB=${LAB}`)
        .replaceAll("/tmp/", `${folder}/`)
        .replaceAll("$PWD/dist", join(root, "dist"))
        .replaceAll(/(?<=^|\s)dist\//gm, `${join(root, "dist")}/`);
      const run = spawnSync("bash", [], {
        input: `exec 3>reported\n${pageScript(text)}\n`,
        cwd: folder,
        env: { ...process.env, CALICO_LAB_PATIENCE: "4" },
        encoding: "utf8",
      });
      const reported = readFileSync(join(folder, "reported"), "utf8").trim().split("\n");
      const want = pageCommands(text).map(({ line, exitCode }) => `${line} ${exitCode}`);
      if (run.status !== 0) console.log(`${run.stdout}${run.stderr}`);
      expect(reported).toEqual(want);
      expect(run.status).toBe(0);
    }, 240_000);
});
