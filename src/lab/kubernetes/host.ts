// A Kubernetes node of the lab: a lab host that also has its own processes, IPC and control groups, so that a kubelet
// and a container runtime find a machine of their own. Its first process is `pause`; when the launcher dies, all in it
// dies.
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { delay } from "../../lib/retry.ts";
import type { LabFolder } from "../folder.ts";
import { baseEnvironment, lastLine, LabHost } from "../host.ts";
import { startProcess } from "../process.ts";
import { delegate, joined, joinFiles, machineHierarchies, makeGroups } from "./cgroups.ts";
import { pausePath } from "./programs.ts";

// Words arrive as arguments, never as script text. $1 host name, $2 the node's folder on disk, $3 the program to become,
// then the hierarchies of control groups. Containers' file systems are overlays, and an overlay's upper layer cannot
// lie on another overlay: /var/lib/containerd and /var/lib/kubelet are bound in from the disk. The kubelet sets some
// values that belong to the whole machine: it finds files with the wanted values in their place.
const BECOME_NODE = `set -eu
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
rm -rf /etc/cni/net.d/* /etc/calico /var/lib/calico # in the overlays: the machine keeps its own
mount --bind /mnt/disk/etc /etc/kubernetes
mount --bind /mnt/disk/kubelet /var/lib/kubelet
mount --bind /mnt/disk/containerd /var/lib/containerd
for plugin in /usr/lib/cni/*; do [ ! -x "$plugin" ] || cp "$plugin" /opt/cni/bin/; done
mount --bind /mnt/run /run
umount -l /sys # with the control groups of the machine, which would be found beside our own
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
  /** What it keeps on disk: etc/ (seen as /etc/kubernetes), kubelet/, containerd/. */
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
    return this.holder !== undefined && existsSync(this.#mark);
  }

  get #mark(): string {
    return join(this.disk, READY_MARK);
  }

  #launch(): void {
    for (const part of ["etc", "kubelet", "containerd"]) mkdirSync(join(this.disk, part), { recursive: true });
    rmSync(this.#mark, { force: true });
    const namespace = `/run/netns/${this.folder.namespace(this.name)}`;
    const unshare = ["unshare", "--mount", "--uts", "--ipc", "--cgroup", "--pid", "--fork", "--kill-child", "--"];
    const become = ["sh", "-c", BECOME_NODE, "node", this.name, this.disk, pausePath()];
    const groups = machineHierarchies().flatMap(({ folder, mountOptions }) =>
      mountOptions === undefined ? [] : [`${folder}:${mountOptions}`],
    );
    const command = ["nsenter", `--net=${namespace}`, "--", ...unshare, ...become, ...groups];
    startProcess(this.folder, this.holderName, joined(makeGroups(this.#group), command), baseEnvironment());
  }

  override enter(command: readonly string[]): readonly [string, ...string[]] {
    const first = this.#firstProcess();
    const namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"];
    return joined(joinFiles(this.#group), ["nsenter", "-t", String(first), ...namespaces, "--", ...command]);
  }

  /** The process that is number 1 inside: the launcher's only child. */
  #firstProcess(): number {
    const launcher = this.holder?.pid;
    if (launcher === undefined) throw new Error(`node ${this.name} of lab ${this.folder.name} is down; calico lab up`);
    const [child] = readFileSync(`/proc/${launcher}/task/${launcher}/children`, "utf8").trim().split(" ");
    if (child === undefined || child === "") throw new Error(`node ${this.name} has no first process`);
    return Number(child);
  }
}

const READY_MARK = "ready";
/** Whether a host with a kubelet is made, by its name alone. */
export const isNodeMade = (folder: LabFolder, node: string): boolean =>
  existsSync(join(nodeFolder(folder, node), READY_MARK));

const nodeFolder = (folder: LabFolder, node: string): string => join(folder.path, "nodes", node);
