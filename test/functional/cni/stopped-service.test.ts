// Tests a CNI service that is stopped (SIGSTOP) or killed while it has the plugin's request. The plugin waits for the reply, or
// reports "try again later" (code 11) when the connection breaks. It never does the work itself, because the service may
// still complete the request.
import { Database } from "bun:sqlite";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { canRun, CniHost, collect, k8s, type Pod, type PluginRun } from "./cni-host.ts";
import { startService } from "./service.ts";

/** Longer than every time limit of the plugin for a service that does not respond (4 s for STATUS). */
const STOPPED_MS = 9000;
const STATUS_LIMIT_MS = 12_000;

interface Served {
  readonly host: CniHost;
  readonly service: ReturnType<typeof startService>;
  readonly conf: Record<string, unknown>;
}

/** @param under the program that starts the service */
async function serve(host: CniHost, under: readonly string[] = []): Promise<Served> {
  const socket = join(host.folder, "run/cni.sock");
  const service = startService(host, socket, under);
  await service.ready;
  // Without the path of the datastore, a plugin that does the work itself fails with another error.
  const conf = { cniVersion: "1.1.0", service_socket: socket, sqlite_path: undefined, datastore_timeout_seconds: 60 };
  return { host, service, conf };
}

/** A service that strace stops when it enters a pod's namespace for the first time, in the middle of an ADD. */
class ServiceStoppedInAdd implements Disposable {
  private constructor(
    readonly served: Served,
    readonly pid: number,
  ) {}

  static async start(host: CniHost): Promise<ServiceStoppedInAdd> {
    const strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=setns"];
    const served = await serve(host, [...strace, "-e", "inject=setns:signal=SIGSTOP:when=1"]);
    const tracer = served.service.child.pid;
    return new ServiceStoppedInAdd(served, Number(readFileSync(`/proc/${tracer}/task/${tracer}/children`, "utf8")));
  }

  /** Waits until all threads are stopped: strace stops single threads at every system call. */
  async untilStopped(): Promise<void> {
    const folder = `/proc/${this.pid}/task`;
    const isStopped = (thread: string) => /\) [tT] /.test(readFileSync(join(folder, thread, "stat"), "utf8"));
    await eventually(() => readdirSync(folder).every(isStopped), 20_000);
  }
  continue(): void {
    process.kill(this.pid, "SIGCONT");
  }
  /** The test host kills only strace, not the traced process. */
  [Symbol.dispose](): void {
    process.kill(this.pid, "SIGKILL");
  }
}

/** Returns the number of connections that the service has not accepted yet. */
async function countWaiting(host: CniHost): Promise<number> {
  const listeners = await collect(host.start("ss", ["-xlH"]));
  return Number(/^\S+\s+LISTEN\s+(\d+)\s.*cni\.sock/m.exec(listeners.stdout)?.[1]);
}
const stateOf = async (host: CniHost) => [
  host.workloadLinks(),
  await host.allocations(),
  await host.handles(),
  [...(await host.all("WorkloadEndpoint")).keys()],
];
const NOTHING = [[], [], [], []];

/** Two pods of Kubernetes and two containers of another runtime. */
const callsFor = (host: CniHost) =>
  [0, 1].flatMap((i) => [
    { pod: host.pod(), who: k8s("ns1", `p${i}`) },
    { pod: host.pod(), who: {} },
  ]);

async function expectAttached(host: CniHost, pods: readonly Pod[], runs: readonly PluginRun[]): Promise<void> {
  for (const run of runs) expect(run).toMatchObject({ code: 0 });
  expect(host.workloadLinks()).toHaveLength(pods.length);
  const handleIds = (await host.allocations()).map((text) => text.split(" ")[1] ?? "");
  expect(handleIds.toSorted()).toEqual(pods.map((pod) => `net1.${pod.containerId}`).toSorted());
}

describe.skipIf(!canRun)("a stopped CNI service", () => {
  test("handles every waiting request once when it continues", async () => {
    await using host = await CniHost.create();
    const { service, conf } = await serve(host);
    service.child.kill("SIGSTOP");
    const calls = callsFor(host);
    const adding = calls.map(({ pod, who }) => host.add(pod, { conf, ...who }));
    await eventually(async () => (await countWaiting(host)) === calls.length);
    await Bun.sleep(STOPPED_MS); // the plugins must still be waiting after this time
    service.child.kill("SIGCONT");
    await expectAttached(
      host,
      calls.map(({ pod }) => pod),
      await Promise.all(adding),
    );
    for (const { pod, who } of calls)
      expect(await host.del(pod, { conf, ...who })).toMatchObject({ code: 0, stdout: "" });
    expect(await stateOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("that was stopped in the middle of an ADD assigns one address to each pod", async () => {
    await using host = await CniHost.create();
    using stopped = await ServiceStoppedInAdd.start(host);
    const { conf } = stopped.served;
    const calls = callsFor(host);
    const adding = calls.map(({ pod, who }) => host.add(pod, { conf, ...who }));
    await stopped.untilStopped();
    await Bun.sleep(STOPPED_MS);
    stopped.continue();
    await expectAttached(
      host,
      calls.map(({ pod }) => pod),
      await Promise.all(adding),
    );
  }, 60_000);

  for (const [i, who] of [k8s("ns1", "p"), {}].entries())
    test(`undoes an ADD of a ${i === 0 ? "pod" : "container"} whose plugin was killed, before the next request for it`, async () => {
      await using host = await CniHost.create();
      using stopped = await ServiceStoppedInAdd.start(host);
      const { conf } = stopped.served;
      const pod = host.pod();
      const killer = new AbortController();
      const first = host.add(pod, { conf, ...who, kill: killer.signal });
      await stopped.untilStopped();
      killer.abort();
      expect((await first).code).toBeNull();
      const second = host.add(pod, { conf, ...who });
      await eventually(async () => (await countWaiting(host)) === 1);
      stopped.continue();
      const added = await second;
      await expectAttached(host, [pod], [added]);
      const checked = { conf: { ...conf, prevResult: added.json }, ...who };
      expect(await host.call("CHECK", pod, checked)).toMatchObject({ stdout: "OK\n" });
      expect(await host.del(pod, { conf, ...who })).toMatchObject({ code: 0 });
      expect(await stateOf(host)).toEqual(NOTHING);
    }, 60_000);

  test("undoes an ADD whose plugin was killed, also if no request follows", async () => {
    await using host = await CniHost.create();
    using stopped = await ServiceStoppedInAdd.start(host);
    const { conf } = stopped.served;
    const pod = host.pod();
    const killer = new AbortController();
    const adding = host.add(pod, { conf, ...k8s("ns1", "p"), kill: killer.signal });
    await stopped.untilStopped();
    killer.abort();
    expect((await adding).code).toBeNull();
    stopped.continue();
    await eventually(() => stopped.served.service.log().includes("the plugin has disconnected"));
    await eventually(async () => (await stateOf(host)).flat().length === 0);
    expect(pod.kernel.links.get("eth0")).toBeUndefined();
  }, 60_000);

  test("that is killed: the plugin reports code 11 and does not do the work itself", async () => {
    await using host = await CniHost.create();
    const { service, conf } = await serve(host);
    service.child.kill("SIGSTOP");
    // Here the plugin could do the work itself.
    const own = { ...conf, sqlite_path: host.sqlitePath };
    const calls = ["ADD", "DEL", "CHECK", "GC"].flatMap((command) =>
      callsFor(host).map((call) => ({ command, ...call })),
    );
    const running = calls.map(({ command, pod, who }) => host.call(command, pod, { conf: own, ...who }));
    await eventually(async () => (await countWaiting(host)) === calls.length);
    service.child.kill("SIGKILL");
    await once(service.child, "close");
    for (const run of await Promise.all(running))
      expect(run).toMatchObject({
        code: 1,
        json: {
          cniVersion: "1.1.0",
          code: 11,
          msg: "the connection to the node's CNI service broke before it replied",
        },
      });
    expect(await stateOf(host)).toEqual(NOTHING);
    // The socket file still exists, and no process listens.
    for (const { command, pod, who } of calls)
      if (command === "ADD") expect(await host.add(pod, { conf: own, ...who })).toMatchObject({ code: 0 });
  }, 60_000);

  test("makes STATUS fail with code 50 after a few seconds, because STATUS changes nothing", async () => {
    await using host = await CniHost.create();
    const { service, conf } = await serve(host);
    service.child.kill("SIGSTOP");
    const began = performance.now();
    const runs = await Promise.all([0, 1].map(() => host.call("STATUS", undefined, { conf })));
    expect(performance.now() - began).toBeWithin(3900, STATUS_LIMIT_MS);
    for (const run of runs)
      expect(run).toMatchObject({
        code: 1,
        json: { code: 50, msg: "the node's CNI service accepts connections but does not answer" },
      });
    service.child.kill("SIGCONT");
    expect(await host.call("STATUS", undefined, { conf })).toMatchObject({ code: 0 });
  }, 60_000);
});

describe.skipIf(!canRun)("a slow CNI service", () => {
  test("is waited for", async () => {
    await using host = await CniHost.create();
    const { conf } = await serve(host);
    const other = new Database(host.sqlitePath);
    other.run("BEGIN EXCLUSIVE");
    const pods = [host.pod(), host.pod()];
    const began = performance.now();
    const adding = pods.map((pod) => host.add(pod, { conf }));
    await Bun.sleep(5500); // longer than the time limit of STATUS
    other.run("ROLLBACK");
    other.close();
    for (const run of await Promise.all(adding)) expect(run).toMatchObject({ code: 0 });
    expect(performance.now() - began).toBeGreaterThan(5000);
    for (const pod of pods) expect(await host.del(pod, { conf })).toMatchObject({ code: 0 });
    expect(await stateOf(host)).toEqual(NOTHING);
  }, 60_000);
});
