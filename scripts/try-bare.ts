// Tests the executable on a minimal Debian (`make try-bare`). First it must print the packages that the lab requires; then,
// with exactly these installed, the lab must work. Each root is created by mmdebstrap from the mirror that this machine uses,
// entered in new namespaces, and removed.
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sources, SUITE } from "./image/debian-root.ts";

const built = join(import.meta.dir, "../dist");

// $1 is the root, $2 the script to run in it. Links and mounts are removed with the first process of the namespaces.
const ENTER = `set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mkdir tmp/machine
pivot_root . tmp/machine
umount -l /tmp/machine
exec env -i PATH=/opt/calico:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -euc "$2"`;

const FIRST_STEPS = `calico version
export CALICO_SQLITE_PATH=/tmp/calico.db
calicoctl apply -f - <<END
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.10.0.0/16, natOutgoing: true}
END
calicoctl get ippool -o wide`;

const LAB = `calico lab up
calico lab status
calico lab demo
calico lab break link node2
calico lab heal
calico lab down
for left in /var/lib/calico-lab /run/netns/*; do
  [ ! -e "$left" ] || { echo "left behind: $left"; exit 1; }
done`;

const folder = mkdtempSync(join(tmpdir(), "calico-bare-"));
process.on("SIGINT", () => process.exit(130)); // so that the next line runs
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

const bare = debian("bare", []);
expectCode(enter(bare, FIRST_STEPS), 0);
const refused = enter(bare, "calico lab up");
expectCode(refused, 1);
const packages = /apt-get install --no-install-recommends (.*)$/m.exec(refused.output)?.[1]?.split(" ") ?? [];
if (packages.length === 0) fail("calico lab up did not say which packages it lacks");
const usable = debian("usable", packages);
for (const options of ["", " --backend vxlan"]) expectCode(enter(usable, LAB.replace("lab up", `lab up${options}`)), 0);
console.log(`try-bare: works on Debian ${SUITE} with ${packages.join(", ")} and nothing else`);

function debian(name: string, packages: readonly string[]): string {
  const root = join(folder, name);
  console.log(`try-bare: Debian ${SUITE}, minimal${packages.length === 0 ? "" : `, with ${packages.join(", ")}`}`);
  const include = packages.length === 0 ? [] : [`--include=${packages.join(",")}`];
  const options = ["--quiet", "--variant=minbase", '--aptopt=Apt::Install-Recommends "false"', ...include];
  const made = spawnSync("mmdebstrap", [...options, SUITE, root, ...sources()], { stdio: "inherit" });
  if (made.status !== 0) fail("mmdebstrap could not make the root");
  cpSync(built, join(root, "opt/calico"), {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => !path.endsWith(".tar"),
  });
  return root;
}

function enter(root: string, script: string): { readonly code: number | null; readonly output: string } {
  const namespaces = ["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child"];
  const { status, stdout } = spawnSync(
    "unshare",
    [...namespaces, "--", "sh", "-c", `exec 2>&1\n${ENTER}`, "enter", root, script],
    {
      encoding: "utf8",
    },
  );
  console.log(stdout.trimEnd().replaceAll(/^/gm, "  "));
  return { code: status, output: stdout };
}

function expectCode({ code }: { readonly code: number | null }, want: number): void {
  if (code !== want) fail(`exit code ${code}, want ${want}`);
}

function fail(why: string): never {
  console.error(`try-bare: ${why}`);
  process.exit(1);
}
