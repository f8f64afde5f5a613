// Writes the bill of materials of the image as a CycloneDX 1.5 document: npm packages with the hashes of bun.lock, Bun with
// the hash of its executable, calico-ts itself, and the layer with Debian packages, which lists its own contents
// (image/finish.sh).
// https://cyclonedx.org/docs/1.5/json/
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { SUITE } from "./debian-root.ts";

const root = join(import.meta.dir, "../..");
const read = (path: string): string => readFileSync(join(root, path), "utf8");

interface Hash {
  readonly alg: "SHA-256" | "SHA-512";
  readonly content: string;
}
interface Component {
  readonly type: "application" | "container" | "library" | "platform";
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly hashes: readonly Hash[];
}

/**
 * @param program path of the executable
 * @param baseLayer SHA-256 of the layer below
 */
export function billOfMaterials(program: string, baseLayer: string | undefined): object {
  const { name, version, license } = JSON.parse(read("package.json")) as Record<"name" | "version" | "license", string>;
  const sha256 = (content: string): Hash => ({ alg: "SHA-256", content });
  const own = {
    type: "application",
    name,
    version,
    licenses: [{ license: { id: license } }],
    hashes: [sha256(createHash("sha256").update(readFileSync(program)).digest("hex"))],
  };
  const base: Component[] =
    baseLayer === undefined
      ? []
      : [{ type: "container", name: "debian-root", version: SUITE, hashes: [sha256(baseLayer)] }];
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: { component: own },
    components: [...base, runtime(), ...lockedPackages()],
  };
}

/** Bun, which the executable contains: the one that runs this script. */
function runtime(): Component {
  const content = createHash("sha256").update(readFileSync(process.execPath)).digest("hex");
  const line = read("scripts/bun.sha256")
    .split("\n")
    .find((each) => each.startsWith(`${content}  `));
  if (line === undefined) throw new Error(`${process.execPath} is not a Bun of scripts/bun.sha256: run make setup`);
  const name = line.slice(content.length + 2, line.lastIndexOf("@"));
  const version = line.slice(line.lastIndexOf("@") + 1);
  return { type: "platform", name, version, purl: purl(name, version), hashes: [{ alg: "SHA-256", content }] };
}

/** The direct and indirect dependencies in the executable, from the lock file. */
function lockedPackages(): readonly Component[] {
  const text = read("bun.lock").replaceAll(/,(\s*[}\]])/g, "$1");
  type Locked = readonly [
    place: string,
    registry: string,
    about: { readonly dependencies?: Readonly<Record<string, string>> },
    integrity: string,
  ];
  const lock = JSON.parse(text) as {
    readonly workspaces: Readonly<Record<string, { readonly dependencies: Readonly<Record<string, string>> }>>;
    readonly packages: Readonly<Record<string, Locked>>;
  };
  const found = new Map<string, Component>();
  const visit = (name: string) => {
    const locked = lock.packages[name];
    if (locked === undefined || found.has(name)) return;
    const [place, , { dependencies = {} }, integrity] = locked;
    const version = place.slice(place.lastIndexOf("@") + 1);
    const content = Buffer.from(integrity.replace(/^sha512-/, ""), "base64").toString("hex");
    found.set(name, {
      type: "library",
      name,
      version,
      purl: purl(name, version),
      hashes: [{ alg: "SHA-512", content }],
    });
    for (const inner of Object.keys(dependencies)) visit(inner);
  };
  for (const name of Object.keys(lock.workspaces[""]?.dependencies ?? {})) visit(name);
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

const purl = (name: string, version: string): string => `pkg:npm/${name.replace("@", "%40")}@${version}`;
