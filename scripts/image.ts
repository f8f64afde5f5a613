// Makes the container image without a registry: Debian's packages below, our executable above, one file that
// `ctr -n k8s.io images import dist/calico-image.tar` and `podman load` read.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { writeArchive } from "./image/archive.ts";
import { CONTEXT, layOutContext } from "./image/context.ts";
import { debianRoot } from "./image/debian-root.ts";
import { IMAGE } from "./manifests/image.ts";

const root = join(import.meta.dir, "..");
const ARCHIVE = join(root, "dist/calico-image.tar");

export async function makeImage(target = ARCHIVE): Promise<void> {
  const created = commitTime();
  layOutContext();
  const lower = debianRoot(created);
  const upper = join(root, "dist/image.tar");
  const stamp = ["--sort=name", `--mtime=@${Math.floor(created.getTime() / 1000)}`, "--owner=0", "--group=0"];
  execFileSync("tar", ["-C", CONTEXT, ...stamp, "--numeric-owner", "-cf", upper, "."]);
  await writeArchive(target, { name: IMAGE, layers: [lower, upper], entrypoint: ["/usr/bin/calico-node"], created });
}

/** The same sources make the same image. */
function commitTime(): Date {
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
