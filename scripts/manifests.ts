// Writes the Kubernetes manifests that are made from code: the custom resource definitions, one file each, and the files
// people apply.
// With `--check`, writes nothing and tells which files are stale.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { dump } from "js-yaml";
import { installations } from "./manifests/installations.ts";
import { CRD_GROUP, CRD_KINDS, customResourceDefinition } from "../src/model/kinds/crd.ts";

const MANIFESTS = join(import.meta.dir, "../manifests");

/** Every generated file by its path under manifests/. */
async function generatedManifests(): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  for (const kind of CRD_KINDS) {
    const definition = await customResourceDefinition(kind);
    const { name } = definition["metadata"] as { name: string };
    files.set(
      `crds/${CRD_GROUP}_${name.split(".")[0]}.yaml`,
      `# Made by \`make manifests\` from src/model/kinds.\n${yaml(definition)}`,
    );
  }
  for (const [file, { about, objects }] of Object.entries(await installations()))
    files.set(
      file,
      `# ${about}\n# Made by \`make manifests\` from scripts/manifests.\n${objects.map((object) => `---\n${yaml(object)}`).join("")}`,
    );
  return files;
}

const yaml = (object: object): string => dump(object, { lineWidth: 120, noRefs: true, sortKeys: false });

/** Files that are missing, differ, or should not be there. */
export async function staleManifests(): Promise<readonly string[]> {
  const wanted = await generatedManifests();
  const stale = [...wanted].filter(([path, text]) => read(path) !== text).map(([path]) => path);
  const present = existsSync(MANIFESTS) ? readdirSync(MANIFESTS, { recursive: true, encoding: "utf8" }) : [];
  return [...stale, ...present.filter((path) => path.endsWith(".yaml") && !wanted.has(path))];
}

function read(path: string): string | undefined {
  const file = join(MANIFESTS, path);
  return existsSync(file) ? readFileSync(file, "utf8") : undefined;
}

if (import.meta.main) {
  const stale = await staleManifests();
  if (process.argv.includes("--check")) {
    for (const path of stale) console.error(`manifests: ${path} is stale: run make manifests`);
    process.exitCode = stale.length === 0 ? 0 : 1;
  } else {
    mkdirSync(join(MANIFESTS, "crds"), { recursive: true });
    const wanted = await generatedManifests();
    for (const path of stale) {
      const text = wanted.get(path);
      if (text === undefined) rmSync(join(MANIFESTS, path));
      else writeFileSync(join(MANIFESTS, path), text);
    }
    console.log(`manifests: ${wanted.size} files, ${stale.length} written`);
  }
}
