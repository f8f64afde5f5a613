// A service that listens but does not answer, and one that is only slow: a call ends in time either way, and nobody does a
// second time what a service may still do when it wakes up.
import { Database } from "bun:sqlite";
import { readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { canRun, CniHost, collect, DIST } from "./cni-host.ts";
import { startService } from "./service.ts";

/** Prologue and runtime wait for four seconds each; the rest is for a busy machine. */
const LIMIT_MS = 12_000;

interface Served {
  readonly host: CniHost;
  readonly service: ReturnType<typeof startService>;
  readonly conf: Record<string, unknown>;
  /** The executable by the name for which its prologue asks, and by another, for which its runtime does. */
  readonly files: readonly string[];
}
async function serve(host: CniHost, under: readonly string[] = []): Promise<Served> {
  const socket = join(host.folder, "run/cni.sock");
  const service = startService(host, socket, under);
  await service.ready;
  const file = join(host.folder, "plugin");
  symlinkSync(join(DIST, "calico"), file);
  // Only the service knows the datastore: who did its work instead would fail otherwise than by its silence.
  const conf = {
    cniVersion: "1.1.0",
    service_socket: socket,
    sqlite_path: undefined,
    datastore_timeout_seconds: 60,
  };
  return { host, service, conf, files: [join(DIST, "calico"), file] };
}
/** Connections that the service has not accepted. */
async function waiting(host: CniHost): Promise<number> {
  const listeners = await collect(host.start("ss", ["-xlH"]));
  return Number(/^\S+\s+LISTEN\s+(\d+)\s.*cni\.sock/m.exec(listeners.stdout)?.[1]);
}
const stateOf = async (host: CniHost) => [
  host.workloadLinks(),
  await host.allocations(),
  await host.handles(),
  [...(await host.all("WorkloadEndpoint")).keys()],
];
const STRACE = ["strace", "-f", "-qq", "-o", "/dev/null", "-e"];
const SILENT = "the node's CNI service accepts connections but does not answer";
const NOTHING = [[], [], [], []];

describe.skipIf(!canRun)("a silent service", () => {
  test("is given up in time with code 11, and does nothing of it when it wakes up", async () => {
    await using host = await CniHost.create();
    const { service, conf, files } = await serve(host);
    service.child.kill("SIGSTOP");
    const calls = files.flatMap((file) => ["ADD", "DEL", "CHECK", "GC"].map((command) => ({ command, file })));
    const pods = calls.map(() => host.pod());
    const began = performance.now();
    const [status, ...runs] = await Promise.all([
      host.call("STATUS", undefined, { conf }),
      ...calls.map(({ command, file }, i) => host.call(command, pods[i], { conf, file })),
    ]);
    expect(performance.now() - began).toBeWithin(3900, LIMIT_MS);
    expect(status!.json).toMatchObject({ code: 50 });
    for (const run of runs)
      expect(run).toMatchObject({
        code: 1,
        json: {
          cniVersion: "1.1.0",
          code: 11,
          msg: SILENT,
        },
      });
    service.child.kill("SIGCONT");
    // It takes up its connections in the order they were made: when this one is answered the others have been.
    expect(await host.call("STATUS", undefined, { conf })).toMatchObject({ code: 0 });
    expect(await stateOf(host)).toEqual(NOTHING);
    for (const pod of pods) expect(await host.add(pod, { conf })).toMatchObject({ code: 0 });
    for (const pod of pods) expect(await host.del(pod, { conf })).toMatchObject({ code: 0, stdout: "" });
    expect(await stateOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("that was stopped in the middle of an ADD leaves nothing after the DEL", async () => {
    await using host = await CniHost.create();
    // Stopped by the kernel when it enters a pod's namespace for the first time, to make the wire.
    const stopped = [...STRACE, "trace=setns", "-e", "inject=setns:signal=SIGSTOP:when=1"];
    const { service, conf, files } = await serve(host, stopped);
    const pods = files.map((file) => ({ pod: host.pod(), file }));
    const adding = pods.map(({ pod, file }) => host.add(pod, { conf, file }));
    const pid = Number(readFileSync(`/proc/${service.child.pid}/task/${service.child.pid}/children`, "utf8"));
    using own = new DisposableStack();
    own.defer(() => process.kill(pid, "SIGKILL")); // the host ends strace, which would leave it alone
    await eventually(() => /\) [tT] /.test(readFileSync(`/proc/${pid}/stat`, "utf8")));
    for (const run of await Promise.all(adding))
      expect(run).toMatchObject({ code: 1, json: { code: 11, msg: SILENT } });
    const before = await waiting(host);
    const deleting = pods.map(({ pod, file }) => host.del(pod, { conf, file }));
    await eventually(async () => (await waiting(host)) === before + pods.length);
    process.kill(pid, "SIGCONT");
    for (const run of await Promise.all(deleting)) expect(run).toMatchObject({ code: 0, stdout: "" });
    expect(await stateOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("is not one that only takes long", async () => {
    await using host = await CniHost.create();
    const { conf, files } = await serve(host);
    const other = new Database(host.sqlitePath);
    other.run("BEGIN EXCLUSIVE");
    const pods = files.map((file) => ({ pod: host.pod(), file }));
    const began = performance.now();
    const adding = pods.map(({ pod, file }) => host.add(pod, { conf, file }));
    await Bun.sleep(5500); // longer than silence is borne
    other.run("ROLLBACK");
    other.close();
    for (const run of await Promise.all(adding)) expect(run).toMatchObject({ code: 0 });
    expect(performance.now() - began).toBeGreaterThan(5000);
    for (const { pod, file } of pods) expect(await host.del(pod, { conf, file })).toMatchObject({ code: 0 });
    expect(await stateOf(host)).toEqual(NOTHING);
  }, 60_000);
});
