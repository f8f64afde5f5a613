// The probe and a fake service, for tests of the prologue: calls as a container runtime makes them, and what became of them.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "bun:test";
import { SERVICE_SOCKET } from "../../src/cni/index.ts";
import { FakeService } from "./fake-service.ts";
import { type Found, PROBE_EXIT, readFindings, writeProbe } from "./probe.ts";
import { PROLOGUE } from "./prologue.ts";

export const isHere = process.platform === "linux" && process.arch === "x64";
if (!isHere) console.log("the prologue is for x86-64 alone: its tests are skipped");

/** The service's usual place, as far as tests are concerned: one of this machine is never asked. */
export const USUAL = `/tmp/prologue-${String(process.pid).padStart(8, "0")}.s`;
if (USUAL.length !== SERVICE_SOCKET.length) throw new Error("the prologue knows how long its path is");
export const HERMETIC = PROLOGUE.replace(SERVICE_SOCKET, USUAL);

export interface Call {
  readonly program?: string;
  readonly argv0?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array | number;
}
export interface Run {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly asked: readonly Buffer[];
  /** When the executable itself was reached. */
  readonly found?: Found;
}

export const ADD = { CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_PATH: "/opt/cni/bin" };

export class ProbeHost implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "prologue-test-"));
  readonly probe = join(this.folder, "probe");
  private constructor(readonly service: FakeService) {
    writeProbe(this.probe, HERMETIC);
  }
  static async create(): Promise<ProbeHost> {
    return new ProbeHost(await FakeService.start());
  }

  conf(more: object = {}): string {
    return JSON.stringify({ name: "net1", service_socket: this.service.path, ...more });
  }

  async call({
    program = this.probe,
    argv0 = "/opt/cni/bin/calico",
    args = [],
    env = ADD,
    stdin = this.conf(),
  }: Call = {}): Promise<Run> {
    this.service.requests.length = 0;
    const child = Bun.spawn([program, ...args], {
      argv0,
      env,
      stdin: typeof stdin === "number" ? stdin : Buffer.from(stdin),
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr] = await Promise.all([
      new Response(child.stdout).bytes(),
      new Response(child.stderr).bytes(),
    ]);
    const code = await child.exited;
    expect(child.signalCode).toBeNull();
    const found = code === PROBE_EXIT ? { found: readFindings(stderr) } : {};
    return { code, stdout: Buffer.from(stdout), asked: [...this.service.requests], ...found };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.service[Symbol.asyncDispose]();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/**
 * Everything was given back: all of standard input, no descriptor left open.
 * @param isBroken whether the request was sent and neither answered nor declined
 */
export function expectDeclined(run: Run, stdin: string | Uint8Array, isBroken = false): void {
  expect(run.code).toBe(PROBE_EXIT);
  expect(run.stdout.equals(Buffer.from(stdin))).toBeTrue();
  expect(run.found).toMatchObject({ lowestDescriptor: 3, isInputMarked: isBroken });
}

/** A request's parts: what the service takes for the environment and for the configuration. */
export function parts(request: Buffer | undefined): { env: unknown; text: Buffer } {
  if (request === undefined) throw new Error("nothing was asked");
  const line = request.indexOf("\n");
  return {
    env: (JSON.parse(request.toString("utf8", 0, line)) as { env: unknown }).env,
    text: request.subarray(line + 1),
  };
}
