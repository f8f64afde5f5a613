// Creates a host for one test: network and mount namespaces with private Calico folders, in which the built calico-node runs as
// on a real machine.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const NODE = join(import.meta.dir, "../../../dist/calico-node");
export const CALICOCTL = join(import.meta.dir, "../../../dist/calicoctl");
/** Otherwise tests are skipped: network namespaces need root, and `make build` creates the executable. */
export const canRun = process.getuid?.() === 0 && existsSync(NODE);

const PRIVATE = ["/var/lib/calico", "/var/run/calico", "/etc/calico", "/var/log/calico"];

export class TestHost implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "node-host-"));
  readonly #holder: ChildProcess;
  readonly #children: ChildProcess[] = [];

  private constructor(commands: readonly string[]) {
    const mounts = PRIVATE.map((folder) => `mkdir -p ${folder} && mount -t tmpfs none ${folder}`);
    const script = [...mounts, "ip link set lo up", ...commands, "echo ready", "exec sleep infinity"].join(" && ");
    this.#holder = spawn("unshare", ["--net", "--mount", "--propagation", "private", "sh", "-c", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
  }

  /** @param commands run once inside the host, such as `ip` */
  static async create(commands: readonly string[]): Promise<TestHost> {
    const host = new TestHost(commands);
    await new Promise<void>((resolve, reject) => {
      host.#holder.stdout?.once("data", () => resolve());
      host.#holder.once("exit", () => reject(new Error("could not create the host")));
    });
    return host;
  }

  get #inside(): string[] {
    return ["-t", String(this.#holder.pid), "-n", "-m", "--"];
  }

  run(command: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const { status, stdout, stderr } = spawnSync("nsenter", [...this.#inside, ...command], {
      encoding: "utf8",
      env: { PATH: process.env["PATH"], ...env } as NodeJS.ProcessEnv,
      timeout: 30_000,
    });
    return { code: status, out: stdout, err: stderr };
  }

  /** Starts a long-running program and collects its output. */
  start(command: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const child = spawn("nsenter", [...this.#inside, ...command], {
      env: { PATH: process.env["PATH"], ...env } as NodeJS.ProcessEnv,
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#children.push(child);
    const program = { child, output: "" };
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => void (program.output += chunk.toString()));
    return program;
  }

  read(path: string): string {
    return this.run(["cat", path]).out;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#killOrphans();
    for (const child of [...this.#children, this.#holder]) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const exited = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await exited;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Children of a killed calico-node continue to run, so all processes in this host's network namespace are killed. */
  #killOrphans(): void {
    const ownNamespace = linkOf(`/proc/${this.#holder.pid}/ns/net`);
    const own = new Set([...this.#children, this.#holder].map(({ pid }) => String(pid)));
    if (ownNamespace === undefined || ownNamespace === linkOf("/proc/self/ns/net")) return;
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name) && !own.has(name)))
      if (linkOf(`/proc/${pid}/ns/net`) === ownNamespace)
        try {
          process.kill(Number(pid), "SIGKILL");
        } catch {
          // it has exited meanwhile
        }
  }
}

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined; // it has exited meanwhile
  }
}
