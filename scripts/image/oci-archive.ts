// Writes an image as one tar file that can be read as an OCI image layout and as a `docker save` archive. Docker 25 and
// later write the same format. Unlike the format of archive.ts, it has a manifest, so the digest of the image is known
// before the image is in a registry. https://github.com/opencontainers/image-spec/blob/main/image-layout.md
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileSha256, type ImageParts, imageConfig } from "./archive.ts";

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

const MANIFEST = "application/vnd.oci.image.manifest.v1+json";

/** Returns the digest of the image's manifest: `sha256:…`. */
export async function writeOciArchive(target: string, parts: ImageParts): Promise<string> {
  const { name, layers, created } = parts;
  mkdirSync(dirname(target), { recursive: true });
  const folder = mkdtempSync(join(dirname(target), ".image-"));
  try {
    mkdirSync(join(folder, "blobs/sha256"), { recursive: true });
    const layerBlobs = await Promise.all(
      layers.map(async (layer): Promise<Descriptor> => {
        const hash = await fileSha256(layer);
        symlinkSync(layer, join(folder, "blobs/sha256", hash));
        return {
          mediaType: "application/vnd.oci.image.layer.v1.tar",
          digest: `sha256:${hash}`,
          size: statSync(layer).size,
        };
      }),
    );
    const blob = (mediaType: string, value: object): Descriptor => {
      const text = JSON.stringify(value);
      const hash = createHash("sha256").update(text).digest("hex");
      writeFileSync(join(folder, "blobs/sha256", hash), text);
      return { mediaType, digest: `sha256:${hash}`, size: Buffer.byteLength(text) };
    };
    const config = blob(
      "application/vnd.oci.image.config.v1+json",
      imageConfig(
        parts,
        layerBlobs.map(({ digest }) => digest),
      ),
    );
    const manifest = blob(MANIFEST, { schemaVersion: 2, mediaType: MANIFEST, config, layers: layerBlobs });
    const annotations = {
      "io.containerd.image.name": name,
      "org.opencontainers.image.ref.name": name.slice(name.lastIndexOf(":") + 1),
    };
    const path = ({ digest }: Descriptor) => `blobs/sha256/${digest.slice("sha256:".length)}`;
    const files = {
      "oci-layout": { imageLayoutVersion: "1.0.0" },
      "index.json": { schemaVersion: 2, manifests: [{ ...manifest, annotations }] },
      "manifest.json": [{ Config: path(config), RepoTags: [name], Layers: layerBlobs.map(path) }],
    };
    for (const [file, value] of Object.entries(files)) writeFileSync(join(folder, file), JSON.stringify(value));
    const stamp = ["--sort=name", `--mtime=@${Math.floor(created.getTime() / 1000)}`, "--owner=0", "--group=0"];
    const names = [...Object.keys(files), "blobs"];
    execFileSync("tar", ["-C", folder, ...stamp, "--numeric-owner", "--dereference", "-cf", target, ...names]);
    return manifest.digest;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
