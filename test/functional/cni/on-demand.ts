// A test's host whose network has a service on demand: its calls, and the processes they start.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { CallOptions, CniHost, PluginRun, Pod } from "./cni-host.ts";

export class OnDemand implements Disposable {
  readonly socket: string;
  readonly logFile: string;
  readonly conf: Record<string, unknown>;

  constructor(
    readonly host: CniHost,
    idleSeconds = 60,
    more: Record<string, unknown> = {},
  ) {
    this.socket = join(host.folder, "cni.sock");
    this.logFile = join(host.folder, "cni.log");
    this.conf = {
      service_socket: this.socket,
      service_idle_seconds: idleSeconds,
      log_level: "debug",
      log_file_path: this.logFile,
      ...more,
    };
  }

  call(command: string, pod: Pod | undefined, options: CallOptions = {}): Promise<PluginRun> {
    const conf = { ...this.conf, ...options.conf };
    return this.host.call(command, pod, { isAmongUs: true, ...options, conf });
  }
  add = (pod: Pod, options?: CallOptions): Promise<PluginRun> => this.call("ADD", pod, options);
  del = (pod: Pod, options?: CallOptions): Promise<PluginRun> => this.call("DEL", pod, options);

  /** Processes that were started for this socket, whoever asks. */
  running(): number[] {
    const isOurs = (pid: string): boolean => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
        return words.includes("--idle") && words.includes(this.socket);
      } catch {
        return false;
      }
    };
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name) && isOurs(name))
      .map(Number);
  }

  /** Makes a first call, and waits until what it started listens. */
  async started(options: CallOptions = {}): Promise<number> {
    const pod = this.host.pod();
    for (const run of [await this.add(pod, options)]) if (run.code !== 0) throw new Error(run.stdout);
    const pid = await eventually(() => this.listening());
    await this.del(pod, options);
    return pid;
  }
  listening(): number | undefined {
    if (!existsSync(this.socket)) return undefined;
    const pid = Number([...this.log().matchAll(/The CNI service listens .*pid=(\d+)/g)].at(-1)?.[1]);
    return this.running().includes(pid) ? pid : undefined;
  }
  async untilNone(withinMs?: number): Promise<void> {
    await eventually(() => this.running().length === 0, withinMs);
  }

  log(): string {
    return existsSync(this.logFile) ? readFileSync(this.logFile, "utf8") : "";
  }
  /** Calls that a started service took up, by command and container. */
  served(): string[] {
    return [...this.log().matchAll(/The CNI service was asked command="(\w+)" containerID="(\w*)"/g)].map(
      ([, command, container]) => `${command} ${container}`,
    );
  }

  [Symbol.dispose](): void {
    for (const pid of this.running()) process.kill(pid, "SIGKILL");
  }
}
