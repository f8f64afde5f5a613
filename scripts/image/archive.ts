// Writes an image as one file in the format of `docker save`, for `ctr images import`, `podman load` and `docker load`.
// https://github.com/moby/moby/blob/master/image/spec/v1.2.md#combined-image-json--filesystem-changeset-format
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { createReadStream, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

export interface ImageParts {
  readonly name: string;
  /** Tar files, the lowest layer first. */
  readonly layers: readonly string[];
  readonly entrypoint: readonly string[];
  readonly created: Date;
}

/** Returns the configuration of the image. https://github.com/opencontainers/image-spec/blob/main/config.md */
export const imageConfig = ({ entrypoint, created }: ImageParts, layerDigests: readonly string[]): object => ({
  architecture: process.arch === "x64" ? "amd64" : process.arch,
  os: "linux",
  created: created.toISOString(),
  config: { Entrypoint: entrypoint, Env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] },
  rootfs: { type: "layers", diff_ids: layerDigests },
});

export async function writeArchive(target: string, parts: ImageParts): Promise<void> {
  const { name, layers } = parts;
  mkdirSync(dirname(target), { recursive: true });
  const folder = mkdtempSync(join(dirname(target), ".image-"));
  try {
    const digests = await Promise.all(layers.map(fileSha256));
    for (const [i, layer] of layers.entries()) symlinkSync(layer, join(folder, `${digests[i]}.tar`));
    const config = JSON.stringify(
      imageConfig(
        parts,
        digests.map((digest) => `sha256:${digest}`),
      ),
    );
    const configName = `${createHash("sha256").update(config).digest("hex")}.json`;
    writeFileSync(join(folder, configName), config);
    const entry = { Config: configName, RepoTags: [name], Layers: digests.map((digest) => `${digest}.tar`) };
    writeFileSync(join(folder, "manifest.json"), JSON.stringify([entry]));
    const order = ["manifest.json", configName, ...new Set(entry.Layers)];
    execFileSync("tar", ["-C", folder, "--owner=0", "--group=0", "--dereference", "-cf", target, ...order]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export async function fileSha256(file: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest("hex");
}
