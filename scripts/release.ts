// `make release`: writes dist/release with everything that a release consists of. docs/releases.md says how to use it.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeOciArchive } from "./image/oci-archive.ts";
import { commitTime, withImageParts } from "./image.ts";
import { pinImage, sumsOf } from "./release/contents.ts";

const root = join(import.meta.dir, "..");
const target = join(root, "dist/release");
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
const architecture = process.arch === "x64" ? "amd64" : process.arch;
const PROGRAM = /^(?:calico|kubectl-calico|check-status)/;

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
writeExecutable();
const digest = await withImageParts((parts) =>
  writeOciArchive(join(target, `calico-ts-v${version}-image-${architecture}.tar`), parts),
);
writeManifests();
writeFileSync(join(target, "IMAGE_DIGEST"), `${digest}\n`);
writeFileSync(join(target, "SHA256SUMS"), await sumsOf(target));
console.log(`release: v${version} in dist/release, image digest ${digest}`);

/** The executable and the links of its programs, in one folder. */
function writeExecutable(): void {
  const folder = `calico-ts-v${version}-linux-${architecture}`;
  const staging = join(root, "dist", folder);
  try {
    mkdirSync(staging);
    for (const name of readdirSync(join(root, "dist")).filter((file) => PROGRAM.test(file) && !file.includes(".")))
      if (name !== folder) cpSync(join(root, "dist", name), join(staging, name), { verbatimSymlinks: true });
    cpSync(join(root, "LICENSE"), join(staging, "LICENSE"));
    archive(join(target, `${folder}.tar.gz`), join(root, "dist"), folder);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

function writeManifests(): void {
  const folder = join(target, "manifests");
  cpSync(join(root, "manifests"), folder, { recursive: true });
  for (const path of readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".yaml"),
  )) {
    const file = join(folder, path);
    writeFileSync(file, pinImage(readFileSync(file, "utf8"), digest));
  }
}

/** The same commit gives the same archive. */
function archive(file: string, folder: string, name: string): void {
  const stamp = ["--sort=name", `--mtime=@${Math.floor(commitTime().getTime() / 1000)}`, "--owner=0", "--group=0"];
  execFileSync("tar", ["-C", folder, ...stamp, "--numeric-owner", "-I", "gzip -n", "-cf", file, name]);
}
