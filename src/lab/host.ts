// Runs a lab host: network, mount and UTS namespaces, kept open by one sleeping process, the holder. /etc and /var are overlays
// and /run is private, so programs find the paths of a real host and write nothing to the machine. Named network namespaces
// that are created inside (pods) are visible only inside, and are removed with the host.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import type { ProcessIdentity } from "../lib/process/process-identity.ts";
import { delay } from "../lib/retry.ts";
import type { LabFolder } from "./folder.ts";
import { findProcess, isHostReady, startProcess } from "./process.ts";

// $1 host name, $2 shared folder; passed as arguments, never inserted into the script. /mnt is temporary: folders that are
// prepared there are bind-mounted to their final paths, then /mnt is unmounted.
const HOLD = `set -eu
cd /
mount --make-rprivate /
umount -l /run/netns 2>/dev/null || true # otherwise this copy would keep namespaces of other labs alive
hostname "$1"
mount -t tmpfs -o mode=0755 calico-lab /mnt
mkdir -p /mnt/etc/upper /mnt/etc/work /mnt/var/upper /mnt/var/work /mnt/run/netns /mnt/run/calico /mnt/shared
mount --bind "$2" /mnt/shared
for tree in etc var; do
  mount -t overlay overlay -o "lowerdir=/$tree,upperdir=/mnt/$tree/upper,workdir=/mnt/$tree/work" "/$tree"
done
# Hides the machine's own Calico files, such as a calicoctl.cfg with another datastore.
for folder in /etc/calico /etc/cni/net.d /var/lib/calico /var/log/calico; do
  mkdir -p "$folder"
  mount -t tmpfs -o mode=0755 calico-lab "$folder"
done
mkdir /var/lib/calico/datastore
grep -qs localhost /etc/hosts || printf '127.0.0.1\\tlocalhost\\n::1\\tlocalhost\\n' >> /etc/hosts
printf '127.0.1.1\\t%s\\n' "$1" >> /etc/hosts
mount --bind /mnt/shared /var/lib/calico/datastore
mount --bind /mnt/run /run
mount -t sysfs sysfs /sys
umount -l /mnt
exec sleep infinity # isHostReady checks for this command line`;

const HOLDER_WAIT_MS = 5000 * timeoutFactor();

/** Result of a command. */
export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export class LabHost {
  constructor(
    readonly folder: LabFolder,
    readonly name: string,
  ) {}

  get holder(): ProcessIdentity | undefined {
    return findProcess(this.folder, this.holderName);
  }

  /** Starts the host in its existing network namespace, unless it runs. */
  async start(): Promise<void> {
    if (this.holder === undefined) {
      const namespace = `/run/netns/${this.folder.namespace(this.name)}`;
      const inside = ["unshare", "--mount", "--uts", "--", "sh", "-c", HOLD, "hold", this.name, this.folder.shared];
      startProcess(this.folder, this.holderName, ["nsenter", `--net=${namespace}`, "--", ...inside], baseEnvironment());
    }
    const deadline = performance.now() + HOLDER_WAIT_MS;
    while (!this.isReady) {
      if (this.holder === undefined || performance.now() > deadline)
        throw new Error(`host ${this.name} did not start: ${lastLine(this.folder.log(this.holderName))}`);
      await delay(5);
    }
  }

  /** False while the host is starting, also if the `up` that started it was killed. */
  get isReady(): boolean {
    const { holder } = this;
    return holder !== undefined && isHostReady(holder.pid);
  }

  /** Returns the command line that runs a command in this host. It uses the holder's root, because the machine may be a chroot. */
  enter(command: readonly string[]): readonly [string, ...string[]] {
    const holder = this.isReady ? this.holder : undefined;
    if (holder === undefined) throw new Error(`host ${this.name} of lab ${this.folder.name} is down; calico lab up`);
    return ["nsenter", "-t", String(holder.pid), "-m", "-r", "-w", "-u", "-n", "--", ...command];
  }

  /** Runs a command in the host and waits for it. */
  run(
    command: readonly string[],
    options: { readonly input?: string; readonly environment?: Readonly<Record<string, string>> } = {},
  ): CommandResult {
    const [file, ...args] = this.enter(command);
    const result = spawnSync(file, args, {
      encoding: "utf8",
      env: { ...baseEnvironment(), ...options.environment },
      maxBuffer: 64 * 1024 * 1024,
      input: options.input,
    });
    return { code: result.status ?? 1, stdout: result.stdout, stderr: result.stderr };
  }

  /** Starts a long-running program in the host, with the name `<host>-<role>`. */
  startProgram(
    role: string,
    command: readonly string[],
    environment: Readonly<Record<string, string>>,
  ): ProcessIdentity {
    return startProcess(this.folder, this.programName(role), this.enter(command), {
      ...baseEnvironment(),
      ...environment,
    });
  }

  program(role: string): ProcessIdentity | undefined {
    return findProcess(this.folder, this.programName(role));
  }

  programName(role: string): string {
    return `${this.name}-${role}`;
  }

  protected get holderName(): string {
    return this.programName("host");
  }
}

/** Environment of every program of the lab. Of the caller's environment it contains only HOME and the terminal's settings. */
export function baseEnvironment(): Record<string, string> {
  const { HOME = "/", TERM = "dumb", NO_COLOR } = process.env;
  return {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME,
    TERM,
    ...(NO_COLOR === undefined ? {} : { NO_COLOR }),
  };
}

/** Multiplies timeouts, for slow machines such as emulators. */
export function timeoutFactor(): number {
  const factor = Number(process.env["CALICO_LAB_PATIENCE"] ?? "");
  return Number.isFinite(factor) && factor > 0 ? factor : 1;
}

export function lastLine(file: string): string {
  try {
    return readFileSync(file, "utf8").trim().split("\n").at(-1) ?? "";
  } catch {
    return "no log";
  }
}
