// Compiles the executable and creates the links for its roles.
//
// --bytecode halves the start time. With --splitting, each role loads only its own code. Without the two
// --no-compile-autoload flags the executable would load a bunfig.toml or .env of its working directory.
import { execFileSync, spawnSync } from "node:child_process";
import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const dist = join(root, "dist");
const roles = [
  "calico-ipam",
  "calicoctl",
  "kubectl-calico",
  "calico-node",
  "calico-felix",
  "calico-typha",
  "calico-kube-controllers",
  "check-status",
  "calico-install",
];
/** Worker threads are separate entry points, which the executable contains under their paths below src/. */
const workers = ["kernel/netlink/event-worker.ts", "kernel/unix/request-worker.ts"];

const version = (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string }).version;
const commit = revision();
mkdirSync(dist, { recursive: true });
/** The executable is replaced atomically, because it may be running ("text file busy"). */
const folder = join(dist, `.build-${process.pid}`);
/** The executable contains its own file name. The name is constant, so that the same sources give the same executable. */
const fresh = join(folder, "calico");
mkdirSync(folder, { recursive: true });
const { status } = spawnSync(
  process.execPath,
  [
    ...["build", "--compile", "--minify", "--bytecode", "--format=esm", "--splitting"],
    ...["--no-compile-autoload-dotenv", "--no-compile-autoload-bunfig"],
    `--define=BUILD_VERSION=${JSON.stringify(`v${version}`)}`,
    `--define=BUILD_COMMIT=${JSON.stringify(commit)}`,
    join(root, "src/main.ts"),
    ...workers.map((worker) => join(root, "src", worker)),
    `--outfile=${fresh}`,
  ],
  { cwd: root, stdio: ["ignore", "ignore", "inherit"] },
);
if (status !== 0) {
  console.error("build: compiling dist/calico failed, see above");
  rmSync(folder, { recursive: true, force: true });
  process.exit(1);
}
renameSync(fresh, join(dist, "calico"));
for (const role of roles) {
  const link = `${fresh}-${role}`;
  symlinkSync("calico", link);
  renameSync(link, join(dist, role));
}
rmSync(folder, { recursive: true, force: true });
removeOldLinks();
console.log(`build: dist/calico v${version} (${commit}), roles ${roles.join(" ")}`);

/** Links of roles that an earlier version created under another name. */
function removeOldLinks(): void {
  for (const name of readdirSync(dist)) {
    const path = join(dist, name);
    if (roles.includes(name) || !lstatSync(path).isSymbolicLink()) continue;
    if (readlinkSync(path) === "calico") rmSync(path);
  }
}

function revision(): string {
  try {
    const words = ["rev-parse", "--short=10", "HEAD"];
    return execFileSync("git", words, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return "unknown"; // an unpacked archive has no git, and git does not trust another user's checkout
  }
}
