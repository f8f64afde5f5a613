// Compiles the one executable and lays the role links beside it.
//
// --bytecode halves start-up, --splitting keeps every role's code out of the others' start;
// without the two --no-compile-autoload flags the binary would execute a bunfig.toml or .env
// found in the directory it is started from.
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
/** Threads are entries of their own, which the executable keeps by their paths under src/. */
const workers = ["kernel/netlink/event-worker.ts", "kernel/unix/request-worker.ts"];

const version = (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string }).version;
const commit = revision();
mkdirSync(dist, { recursive: true });
/** Whoever runs the executable meanwhile has the old one or the new one, never half of it ("text file busy"). */
const fresh = join(dist, `.calico-${process.pid}`);
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
  console.error("build: dist/calico could not be made, see above");
  process.exit(1);
}
renameSync(fresh, join(dist, "calico"));
for (const role of roles) {
  const link = `${fresh}-${role}`;
  symlinkSync("calico", link);
  renameSync(link, join(dist, role));
}
removeOldLinks();
console.log(`build: dist/calico v${version} (${commit}), roles ${roles.join(" ")}`);

/** Links of roles that an earlier version had under another name. */
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
