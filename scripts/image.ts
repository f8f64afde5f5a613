// Builds the container image without a registry: a layer with Debian packages, a layer with the executable, in one file that
// `ctr -n k8s.io images import dist/calico-image.tar` and `podman load` accept.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileSha256, type ImageParts, writeArchive } from "./image/archive.ts";
import { writeImageContext } from "./image/context.ts";
import { debianRoot } from "./image/debian-root.ts";
import { IMAGE } from "./manifests/image.ts";

const root = join(import.meta.dir, "..");
const ARCHIVE = join(root, "dist/calico-image.tar");

export function makeImage(target = ARCHIVE): Promise<void> {
  return withImageParts((parts) => writeArchive(target, parts));
}

/** Calls `use` with the parts of the image, whose layers are deleted afterwards. */
export async function withImageParts<T>(use: (parts: ImageParts) => Promise<T>): Promise<T> {
  const created = commitTime();
  const lower = debianRoot(created);
  const folder = mkdtempSync(join(root, "dist/image-"));
  try {
    const [context, upper] = [join(folder, "root"), join(folder, "layer.tar")];
    writeImageContext(context, await fileSha256(lower));
    const stamp = ["--sort=name", `--mtime=@${Math.floor(created.getTime() / 1000)}`, "--owner=0", "--group=0"];
    execFileSync("tar", ["-C", context, ...stamp, "--numeric-owner", "-cf", upper, "."]);
    return await use({ name: IMAGE, layers: [lower, upper], entrypoint: ["/usr/bin/calico-node"], created });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The time in the image is that of the commit, so that equal sources produce equal images. */
export function commitTime(): Date {
  try {
    const seconds = execFileSync("git", ["log", "-1", "--format=%ct"], { cwd: root, encoding: "utf8" });
    return new Date(Number(seconds) * 1000);
  } catch {
    return new Date(0); // an unpacked archive has no git
  }
}

if (import.meta.main) {
  await makeImage();
  console.log(`image: ${IMAGE} in ${ARCHIVE}`);
}
