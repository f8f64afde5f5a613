// Our own part of the image, laid out as it lies there: the executable, a link for every role, and what it was made of.
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "../..");
const CONTEXT = join(root, "dist/image");

const PROGRAM = "/usr/bin/calico";
const LINKS = [
  ...[
    "calico-node",
    "calico-felix",
    "calico-typha",
    "calico-kube-controllers",
    "calicoctl",
    "check-status",
    "calico-install",
  ].map((role) => `usr/bin/${role}`),
  // Manifests call this path of the installer. It is not on PATH, where it would hide the `install` of coreutils.
  ...["calico", "calico-ipam", "install"].map((role) => `opt/cni/bin/${role}`),
];

export function layOutContext(folder = CONTEXT): void {
  const program = join(root, "dist/calico");
  if (!existsSync(program)) throw new Error("dist/calico is not there: run make build");
  rmSync(folder, { recursive: true, force: true });
  for (const path of ["usr/bin", "opt/cni/bin", "usr/share/sbom"]) mkdirSync(join(folder, path), { recursive: true });
  copyFileSync(program, join(folder, PROGRAM));
  for (const link of LINKS) symlinkSync(PROGRAM, join(folder, link));
  writeFileSync(join(folder, "usr/share/sbom/calico.cdx.json"), `${JSON.stringify(billOfMaterials(), null, 1)}\n`);
}

/** CycloneDX: what the executable was compiled from. */
function billOfMaterials(): object {
  const { name, version, license } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Record<
    "name" | "version" | "license",
    string
  >;
  const components = lockedPackages().map(([library, release]) => ({
    type: "library",
    name: library,
    version: release,
    purl: `pkg:npm/${library.replace("@", "%40")}@${release}`,
  }));
  const program = { type: "application", name, version, licenses: [{ license: { id: license } }] };
  return { bomFormat: "CycloneDX", specVersion: "1.5", version: 1, metadata: { component: program }, components };
}

/** The dependencies that are in the executable, with theirs, and the runtime, from the lock file. */
function lockedPackages(): readonly (readonly [string, string])[] {
  const text = readFileSync(join(root, "bun.lock"), "utf8").replaceAll(/,(\s*[}\]])/g, "$1");
  type Locked = readonly [string, string, { readonly dependencies?: Readonly<Record<string, string>> }?];
  const lock = JSON.parse(text) as {
    readonly workspaces: Readonly<Record<string, { readonly dependencies: Readonly<Record<string, string>> }>>;
    readonly packages: Readonly<Record<string, Locked>>;
  };
  const found = new Map<string, string>();
  const visit = (name: string) => {
    const [place, , { dependencies = {} } = {}] = lock.packages[name] ?? ["", ""];
    if (place === "" || found.has(name)) return;
    found.set(name, place.slice(place.lastIndexOf("@") + 1));
    for (const inner of Object.keys(dependencies)) visit(inner);
  };
  for (const name of Object.keys(lock.workspaces[""]?.dependencies ?? {})) visit(name);
  visit("bun");
  return [...found].sort();
}

if (import.meta.main) layOutContext();
