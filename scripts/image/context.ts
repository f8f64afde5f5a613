// Writes the files of the upper image layer: the executable, a link for every role, and the bill of materials.
import { copyFileSync, existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { billOfMaterials } from "./bill-of-materials.ts";

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
  // Manifests run `/opt/cni/bin/install`. That folder is not in PATH, so it does not hide `install` of coreutils.
  ...["calico", "calico-ipam", "install"].map((role) => `opt/cni/bin/${role}`),
];

/** @param baseLayer SHA-256 of the layer below, if it is known */
export function writeImageContext(folder = CONTEXT, baseLayer?: string): void {
  const program = join(root, "dist/calico");
  if (!existsSync(program)) throw new Error("dist/calico does not exist: run make build");
  rmSync(folder, { recursive: true, force: true });
  for (const path of ["usr/bin", "opt/cni/bin", "usr/share/sbom"]) mkdirSync(join(folder, path), { recursive: true });
  copyFileSync(program, join(folder, PROGRAM));
  for (const link of LINKS) symlinkSync(PROGRAM, join(folder, link));
  writeFileSync(
    join(folder, "usr/share/sbom/calico.cdx.json"),
    `${JSON.stringify(billOfMaterials(program, baseLayer), null, 1)}\n`,
  );
}

if (import.meta.main) writeImageContext();
