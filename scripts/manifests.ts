// Writes the generated Kubernetes manifests: the custom resource definitions, one file each, and the installation manifests.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { dump } from "js-yaml";
import { type Call, commandsWith, type Grammar } from "../src/lib/command-line/command.ts";
import { programMain } from "../src/lib/command-line/run.ts";
import { installations } from "./manifests/installations.ts";
import { CRD_GROUP, CRD_KINDS, customResourceDefinition } from "../src/model/kinds/crd.ts";

const MANIFESTS = join(import.meta.dir, "../manifests");

/** Returns the generated files by their path below manifests/. */
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

/** Returns the files that are missing, out of date, or should not exist. */
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

const grammar = {
  flags: { check: { type: "switch", about: "write nothing; name stale files, and exit with 1 if there are any" } },
} as const satisfies Grammar;

async function run({ flags }: Call<typeof grammar>): Promise<number> {
  const stale = await staleManifests();
  if (flags.check) {
    for (const path of stale) console.error(`manifests: ${path} is out of date: run make manifests`);
    return stale.length === 0 ? 0 : 1;
  }
  mkdirSync(join(MANIFESTS, "crds"), { recursive: true });
  const wanted = await generatedManifests();
  for (const path of stale) {
    const text = wanted.get(path);
    if (text === undefined) rmSync(join(MANIFESTS, path));
    else writeFileSync(join(MANIFESTS, path), text);
  }
  console.log(`manifests: ${wanted.size} files, ${stale.length} written`);
  return 0;
}

if (import.meta.main) {
  const command = commandsWith({})({
    name: "bun scripts/manifests.ts",
    about: "Write the Kubernetes manifests that are generated from code.",
    ...grammar,
    load: async () => ({ run }),
  });
  process.exitCode = await programMain(command)(process.argv.slice(2));
}
