// Builds container images without a registry: one layer, in the format of `docker save`, which containerd can import.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { AGNHOST_IMAGE, COREDNS_IMAGE, PAUSE_IMAGE } from "./image-names.ts";
import { cacheFolder, pausePath, programPath } from "./programs.ts";

export interface Image {
  readonly name: string;
  readonly entrypoint: readonly string[];
}

/** Keeps the namespaces of a pod open. */
export const pauseImage = (): string => imageOf(PAUSE_IMAGE, pausePath());

/** Test clients and servers, from the Kubernetes end-to-end tests. */
export const agnhostImage = (): string => imageOf(AGNHOST_IMAGE, programPath("agnhost"));

/** The cluster's DNS server. */
export const coreDnsImage = (): string => imageOf(COREDNS_IMAGE, programPath("coredns"));

/** Builds an image of one static program, once per version. */
function imageOf(name: string, program: string): string {
  const file = basename(program);
  const archive = join(cacheFolder(), "images", `${file}-${basename(dirname(program))}.tar`);
  if (existsSync(archive)) return archive;
  mkdirSync(dirname(archive), { recursive: true });
  const root = mkdtempSync(`${archive}-`);
  try {
    cpSync(program, join(root, file), { dereference: true });
    for (const folder of ["tmp", "etc", "proc", "sys", "dev"]) mkdirSync(join(root, folder));
    chmodSync(root, 0o755); // accessible for any user of the pod
    chmodSync(join(root, "tmp"), 0o1777);
    packImage(root, { name, entrypoint: [`/${file}`] }, archive);
    return archive;
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

/** Packs a root file system into an archive, which is renamed to its final name when complete. */
function packImage(root: string, image: Image, archive: string): void {
  const folder = mkdtempSync(`${archive}-pack-`);
  try {
    const layer = join(folder, "layer.tar");
    const owner = ["--numeric-owner", "--owner=0", "--group=0"];
    execFileSync("tar", ["--create", "--sort=name", ...owner, "--file", layer, "--directory", root, "."]);
    const diff = createHash("sha256").update(readFileSync(layer)).digest("hex");
    writeFileSync(join(folder, "config.json"), JSON.stringify(imageConfig(image, `sha256:${diff}`)));
    const manifest = [{ Config: "config.json", RepoTags: [image.name], Layers: ["layer.tar"] }];
    writeFileSync(join(folder, "manifest.json"), JSON.stringify(manifest));
    const parts = ["manifest.json", "config.json", "layer.tar"];
    execFileSync("tar", ["--create", "--file", join(folder, "image.tar"), "--directory", folder, ...parts]);
    renameSync(join(folder, "image.tar"), archive);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export function imageConfig({ entrypoint }: Image, layer: string): object {
  return {
    architecture: process.arch === "x64" ? "amd64" : process.arch,
    os: "linux",
    config: { Env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], Entrypoint: entrypoint },
    rootfs: { type: "layers", diff_ids: [layer] },
    history: [{ created_by: "calico lab" }],
  };
}
