// Runs a Kubernetes node of the lab: a lab host with its own pid, IPC and cgroup namespaces, as a kubelet and a container
// runtime require. Its first process is `pause`. If the launcher is killed, all processes of the node are killed.
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { delay } from "../../lib/retry.ts";
import type { LabFolder } from "../folder.ts";
import { baseEnvironment, lastLine, LabHost } from "../host.ts";
import { startProcess } from "../process.ts";
import { delegate, runInGroups, joinFiles, machineHierarchies, createGroups } from "./cgroups.ts";
import { pausePath } from "./programs.ts";

// $1 host name, $2 the node's folder on disk, $3 the program to execute, then the cgroup hierarchies; passed as arguments, never
// inserted into the script. The file systems of containers are overlays, and the upper layer of an overlay cannot be on another
// overlay, so /var/lib/containerd and /var/lib/kubelet are bind-mounted from the disk. The kubelet checks some sysctls of the
// whole machine, so files with the expected values are mounted over them.
const NODE_SETUP = `set -eu
name=$1 disk=$2 first=$3; shift 3
mount --make-rprivate /
umount -l /run/netns 2>/dev/null || true
hostname "$name"
mount -t proc proc /proc
mount -t tmpfs -o mode=0755 calico-lab /mnt
mkdir -p /mnt/run/netns /mnt/sysctl /mnt/disk
mount --bind "$disk" /mnt/disk
for tree in etc opt var; do
  mkdir -p "/mnt/$tree/upper" "/mnt/$tree/work"
  mount -t overlay overlay -o "lowerdir=/$tree,upperdir=/mnt/$tree/upper,workdir=/mnt/$tree/work" "/$tree"
done
mkdir -p /etc/kubernetes /etc/cni/net.d /opt/cni/bin /var/lib/kubelet /var/lib/containerd /var/log/pods /var/log/containers
rm -rf /etc/cni/net.d/* /etc/calico /var/lib/calico # only in the overlays
mount --bind /mnt/disk/etc /etc/kubernetes
mount --bind /mnt/disk/kubelet /var/lib/kubelet
mount --bind /mnt/disk/containerd /var/lib/containerd
for plugin in /usr/lib/cni/*; do [ ! -x "$plugin" ] || cp "$plugin" /opt/cni/bin/; done
mount --bind /mnt/run /run
umount -l /sys # otherwise the cgroups of the machine would be visible too
mount -t sysfs sysfs /sys
while read -r path value; do
  [ -e "/proc/sys/$path" ] || continue
  file=/mnt/sysctl/$(echo "$path" | tr / .)
  echo "$value" > "$file"
  mount --bind "$file" "/proc/sys/$path"
done <<'END'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
if [ $# -eq 0 ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs -o mode=0755 cgroup /sys/fs/cgroup
  for hierarchy; do
    folder=\${hierarchy%%:*}
    mkdir "/sys/fs/cgroup/$folder"
    mount -t cgroup -o "\${hierarchy#*:}" cgroup "/sys/fs/cgroup/$folder"
    case $folder in *,*) for one in $(echo "$folder" | tr , ' '); do ln -s "$folder" "/sys/fs/cgroup/$one"; done ;; esac
  done
fi
mount --make-rshared /
: > /mnt/disk/ready
umount -l /mnt
exec "$first"`;

const START_WAIT_MS = 10_000;

export class KubernetesHost extends LabHost {
  /** The node's folder on disk: etc/ (mounted at /etc/kubernetes), kubelet/, containerd/. */
  get disk(): string {
    return nodeFolder(this.folder, this.name);
  }

  get #group(): string {
    return this.folder.namespace(this.name);
  }

  override async start(): Promise<void> {
    if (this.isReady) return;
    if (this.holder === undefined) this.#launch();
    const deadline = performance.now() + START_WAIT_MS;
    while (!this.isReady) {
      if (this.holder === undefined || performance.now() > deadline)
        throw new Error(`node ${this.name} did not start: ${lastLine(this.folder.log(this.holderName))}`);
      await delay(10);
    }
    delegate(this.#group);
  }

  override get isReady(): boolean {
    return this.holder !== undefined && existsSync(this.#readyFile);
  }

  get #readyFile(): string {
    return join(this.disk, READY_FILE);
  }

  #launch(): void {
    for (const part of ["etc", "kubelet", "containerd"]) mkdirSync(join(this.disk, part), { recursive: true });
    rmSync(this.#readyFile, { force: true });
    const namespace = `/run/netns/${this.folder.namespace(this.name)}`;
    const unshare = ["unshare", "--mount", "--uts", "--ipc", "--cgroup", "--pid", "--fork", "--kill-child", "--"];
    const setup = ["sh", "-c", NODE_SETUP, "node", this.name, this.disk, pausePath()];
    const groups = machineHierarchies().flatMap(({ folder, mountOptions }) =>
      mountOptions === undefined ? [] : [`${folder}:${mountOptions}`],
    );
    const command = ["nsenter", `--net=${namespace}`, "--", ...unshare, ...setup, ...groups];
    startProcess(this.folder, this.holderName, runInGroups(createGroups(this.#group), command), baseEnvironment());
  }

  override enter(command: readonly string[]): readonly [string, ...string[]] {
    const first = this.#firstProcess();
    const namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"];
    return runInGroups(joinFiles(this.#group), ["nsenter", "-t", String(first), ...namespaces, "--", ...command]);
  }

  /** Pid of the node's first process, the launcher's only child. */
  #firstProcess(): number {
    const launcher = this.holder?.pid;
    if (launcher === undefined) throw new Error(`node ${this.name} of lab ${this.folder.name} is down; calico lab up`);
    const [child] = readFileSync(`/proc/${launcher}/task/${launcher}/children`, "utf8").trim().split(" ");
    if (child === undefined || child === "") throw new Error(`node ${this.name} has no first process`);
    return Number(child);
  }
}

const READY_FILE = "ready";
/** Whether a Kubernetes node has finished its setup. */
export const isNodeReady = (folder: LabFolder, node: string): boolean =>
  existsSync(join(nodeFolder(folder, node), READY_FILE));

const nodeFolder = (folder: LabFolder, node: string): string => join(folder.path, "nodes", node);
