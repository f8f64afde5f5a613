// Builds the lower layer of the image: Debian with the packages of image/packages.txt, from the mirror that this machine
// uses. The layer is cached under a hash of its inputs.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

const image = join(import.meta.dir, "../../image");
const FINISH = join(image, "finish.sh");
/** The package index is outside the new root, which has no apt. finish.sh reads the two files. */
const INDEX_HOOK = `set -eu
wanted=$(chroot "$1" dpkg-query -W -f='\${Package}=\${Version} ')
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-cache show $wanted >"$1/tmp/packages.available"
cat "$1"/var/lib/apt/lists/*Release | sha256sum | cut -d ' ' -f 1 >"$1/tmp/release.sha256"`;
const CACHE = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "calico-ts");
export const SUITE = "bookworm";

function debianPackages(): readonly string[] {
  return readFileSync(join(image, "packages.txt"), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
}

/** The name contains a hash of the inputs. */
function cachedTar(): string {
  const recipe = [SUITE, process.arch, ...debianPackages(), INDEX_HOOK, readFileSync(FINISH, "utf8")].join("\n");
  return join(CACHE, `debian-root-${createHash("sha256").update(recipe).digest("hex").slice(0, 12)}.tar`);
}

export const isDebianRootCached = (): boolean => existsSync(cachedTar());

/** Returns the tar file of the layer. Builds it if it is not in the cache. */
export function debianRoot(createdAt: Date): string {
  const tar = cachedTar();
  if (existsSync(tar)) return tar;
  mkdirSync(CACHE, { recursive: true });
  const beside = `${tar}.${process.pid}.tar`;
  try {
    execFileSync(
      "mmdebstrap",
      [
        "--variant=essential",
        "--quiet",
        `--include=${debianPackages().join(",")}`,
        '--aptopt=Apt::Install-Recommends "false"',
        `--customize-hook=${INDEX_HOOK}`,
        `--customize-hook=copy-in ${FINISH} /tmp`,
        '--customize-hook=chroot "$1" sh /tmp/finish.sh',
        '--customize-hook=rm "$1/tmp/finish.sh"',
        SUITE,
        beside,
        ...sources(),
      ],
      {
        stdio: ["ignore", "ignore", "inherit"],
        env: { ...process.env, SOURCE_DATE_EPOCH: `${Math.floor(createdAt.getTime() / 1000)}` },
      },
    );
    renameSync(beside, tar);
  } finally {
    rmSync(beside, { force: true });
  }
  return tar;
}

/** Returns the package sources of this machine for the suite. If there are none, mmdebstrap uses its default. */
export function sources(): readonly string[] {
  const folder = "/etc/apt/sources.list.d";
  const files = [
    "/etc/apt/sources.list",
    ...(existsSync(folder) ? readdirSync(folder).map((f) => join(folder, f)) : []),
  ];
  const isOurs = (text: string) => new RegExp(`(^Suites:.*|^deb .*)\\b${SUITE}( |$)`, "m").test(text);
  return files.filter(
    (file) => /\.(list|sources)$/.test(file) && existsSync(file) && isOurs(readFileSync(file, "utf8")),
  );
}
