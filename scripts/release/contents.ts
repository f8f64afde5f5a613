// Pins the image of manifests to a digest, and lists the sums of a release's files.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileSha256 } from "../image/archive.ts";
import { IMAGE } from "../manifests/image.ts";

const NAME = IMAGE.slice(0, IMAGE.lastIndexOf(":"));

/** Replaces the tag of calico-ts's image by the digest. Other images do not occur in the manifests. */
export const pinImage = (manifest: string, digest: string): string =>
  manifest.replaceAll(`image: ${IMAGE}`, `image: ${NAME}@${digest}`);

/** Returns the contents of SHA256SUMS, as `sha256sum -c` reads it. */
export async function sumsOf(folder: string): Promise<string> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== "SHA256SUMS")
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .toSorted();
  const lines = await Promise.all(files.map(async (file) => `${await fileSha256(join(folder, file))}  ${file}\n`));
  return lines.join("");
}
