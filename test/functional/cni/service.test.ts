// Tests the CNI service: it returns the same results as the plugin alone, and the plugin works without it.
import { Database } from "bun:sqlite";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { describe, expect, test } from "bun:test";
import { canRun, CniHost, k8s } from "./cni-host.ts";
import { startService } from "./service.ts";

describe.skipIf(!canRun)("service", () => {
  test("ADD, CHECK and DEL over the socket do what the plugin does alone", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    const service = startService(host, socket);
    await service.ready;
    expect(statSync(socket).mode & 0o777).toBe(0o600);
    const conf = { service_socket: socket, ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } };
    // Without the path of the datastore, only the service can succeed.
    const served = { ...conf, sqlite_path: undefined };
    const pod = host.pod("cid1");
    const added = await host.add(pod, { conf: served });
    expect(added.json).toMatchObject({ interfaces: [{ name: "calicid1" }], ips: [{ address: "10.65.0.128/32" }, {}] });
    expect(pod.kernel.links.get("eth0")).toMatchObject({ isUp: true });
    expect(host.kernel.links.get("calicid1")).toMatchObject({ mac: "ee:ee:ee:ee:ee:ee" });
    expect((await host.call("CHECK", pod, { conf: { ...served, prevResult: added.json } })).stdout).toBe("OK\n");
    expect((await host.call("CHECK", pod, { conf: { ...conf, service_socket: "" } })).stdout).toBe("OK\n");
    expect(await host.del(pod, { conf: served })).toMatchObject({ code: 0, stdout: "" });
    expect(pod.kernel.links.get("eth0")).toBeUndefined();
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
    expect((await host.add(host.pod(), { conf: { ...served, device_type: "x" } })).json).toMatchObject({ code: 999 });
    expect((await host.add(host.pod(), { conf: served, env: { CNI_NETNS: "/run/netns/none" } })).json["msg"]).toContain(
      "none",
    );
    expect(await host.allocations()).toEqual([]);
  });

  test("a long configuration in any alphabet is received completely, and the plugin rejects invalid JSON", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    const service = startService(host, socket);
    await service.ready;
    const pod = host.pod("cid2");
    const conf = { service_socket: socket, sqlite_path: undefined, comment: 'größer 网络 "{\\n'.repeat(30_000) };
    const env = { CNI_ARGS: "IgnoreUnknown=1;NOTE=größer", CNI_PATH: "/opt/größer" };
    expect(await host.add(pod, { conf, env })).toMatchObject({ code: 0 });
    expect(await host.del(pod, { conf, env })).toMatchObject({ code: 0, stdout: "" });
    const text = `${JSON.stringify(host.conf({ service_socket: socket }))},{}`;
    expect((await host.add(host.pod(), { stdin: text })).json).toMatchObject({ code: 6 });
    expect(await host.allocations()).toEqual([]);
  });

  test("thirty concurrent pods get thirty addresses and interfaces, and DEL removes them", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    await startService(host, socket).ready;
    const conf = { service_socket: socket };
    const pods = Array.from({ length: 30 }, () => host.pod());
    const runs = await Promise.all(pods.map((pod, i) => host.add(pod, { conf, ...k8s("ns1", `p${i}`) })));
    const addresses = runs.map((run) => (run.json["ips"] as { address: string }[])[0]!.address);
    expect(new Set(addresses).size).toBe(30);
    expect(host.workloadLinks()).toHaveLength(30);
    const gone = await Promise.all(pods.map((pod, i) => host.del(pod, { conf, ...k8s("ns1", `p${i}`) })));
    expect(gone.every((run) => run.code === 0)).toBeTrue();
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
  });

  // With more CPUs the pool is large enough anyway.
  test.skipIf(availableParallelism() > 4)(
    "the runtime's thread pool grows while the kernel removes links, so that other pods do not wait",
    async () => {
      await using host = await CniHost.create();
      const socket = join(host.folder, "run/cni.sock");
      const service = startService(host, socket);
      await service.ready;
      const conf = { service_socket: socket };
      // Each removal blocks one thread for some milliseconds. How many removals overlap depends on the kernel, so several
      // rounds may be necessary until a third thread is needed. Without removals the pool has one thread per CPU.
      const cpuThreads = Math.max(2, availableParallelism());
      let threads = 0;
      for (let round = 0; threads <= cpuThreads && round < 20; round++) {
        const pods = Array.from({ length: 20 }, () => host.pod());
        for (const pod of pods) expect(await host.add(pod, { conf })).toMatchObject({ code: 0 });
        for (const pod of pods) expect(await host.del(pod, { conf })).toMatchObject({ code: 0 });
        threads = poolThreads(service.child.pid!);
      }
      expect(threads).toBeGreaterThan(cpuThreads);
    },
  );

  test("while another process locks the datastore, concurrent ADD and DEL fail within the deadline; a later DEL removes everything", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    await startService(host, socket).ready;
    const conf = { service_socket: socket, datastore_timeout_seconds: 3 };
    const pods = Array.from({ length: 4 }, () => host.pod());
    expect(await host.add(pods[0]!, { conf })).toMatchObject({ code: 0 });
    const other = new Database(host.sqlitePath);
    other.run("BEGIN EXCLUSIVE");
    const started = performance.now();
    const refused = await Promise.all([
      ...pods.slice(1).map((pod) => host.add(pod, { conf })),
      host.del(pods[0]!, { conf }),
    ]);
    const seconds = (performance.now() - started) / 1000;
    other.run("ROLLBACK");
    other.close();
    expect(refused.map(({ code, json }) => [code, json["code"]])).toEqual(refused.map(() => [1, 11]));
    expect(seconds).toBeLessThan(3.5);
    for (const pod of pods) expect(await host.del(pod, { conf })).toMatchObject({ code: 0 });
    expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
  });

  test("the plugin does the work itself for host programs, another datastore and a killed service", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    const service = startService(host, socket);
    await service.ready;
    const ipam = { type: "host-local", subnet: "10.70.0.0/24", dataDir: `${host.folder}/hl` };
    expect((await host.add(host.pod(), { conf: { service_socket: socket, ipam } })).json["ips"]).toEqual([
      { address: "10.70.0.2/32" },
    ]);
    const elsewhere = { service_socket: socket, datastore_type: "etcdv3", etcd_endpoints: "http://127.0.0.1:9" };
    expect((await host.add(host.pod(), { conf: elsewhere })).json).toMatchObject({ code: 11 });
    service.child.kill("SIGKILL");
    await once(service.child, "close");
    const pod = host.pod();
    expect((await host.add(pod, { conf: { service_socket: socket } })).code).toBe(0);
    // A new service takes the socket over.
    const next = startService(host, socket);
    await next.ready;
    expect((await host.del(pod, { conf: { service_socket: socket, sqlite_path: undefined } })).code).toBe(0);
    expect(await host.handles()).toEqual([]);
  });

  test("if the service is killed during ADD, DEL removes everything", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    for (let ms = 4; ms <= 20; ms += 4) {
      const service = startService(host, socket);
      await service.ready;
      const pods = Array.from({ length: 4 }, () => host.pod());
      const adding = pods.map((pod) => host.add(pod, { conf: { service_socket: socket } }));
      await new Promise((resolve) => setTimeout(resolve, ms));
      service.child.kill("SIGKILL");
      // A plugin that had sent its request reports "try again later"; one that came later did the work itself.
      for (const run of await Promise.all(adding)) if (run.code !== 0) expect(run.json).toMatchObject({ code: 11 });
      for (const pod of pods) expect((await host.del(pod)).code).toBe(0);
      expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
    }
  }, 60_000);

  test("after SIGTERM the service replies to every request that was sent to it", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    for (let ms = 2; ms <= 32; ms += 6) {
      const service = startService(host, socket);
      await service.ready;
      const pods = Array.from({ length: 8 }, () => host.pod());
      const adding = pods.map((pod) => host.add(pod, { conf: { service_socket: socket } }));
      await Bun.sleep(ms); // at another point of the requests every time
      service.child.kill("SIGTERM");
      for (const run of await Promise.all(adding)) expect(run).toMatchObject({ code: 0 });
      for (const pod of pods) expect(await host.del(pod)).toMatchObject({ code: 0 });
      expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
    }
  }, 60_000);

  test("keeps no thread in the network namespace of a pod, because the thread would keep the namespace alive", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    const service = startService(host, socket);
    await service.ready;
    const pods = Array.from({ length: 10 }, () => host.pod());
    const options = { conf: { service_socket: socket } };
    for (let round = 0; round < 10; round++)
      for (const command of ["ADD", "DEL"])
        for (const run of await Promise.all(pods.map((pod) => host.call(command, pod, options))))
          expect(run.code).toBe(0);
    const { pid } = service.child;
    const namespaces = readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
      try {
        return [readlinkSync(`/proc/${pid}/task/${thread}/ns/net`)];
      } catch {
        return []; // the thread has ended
      }
    });
    expect(new Set(namespaces)).toEqual(new Set([readlinkSync(`/proc/${pid}/ns/net`)]));
  }, 60_000);

  test("a second service does not replace the first; SIGTERM removes the socket", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    const first = startService(host, socket);
    await first.ready;
    const second = startService(host, socket);
    second.ready.catch(() => {}); // it is never ready
    const [code] = (await once(second.child, "close")) as [number];
    expect(code).not.toBe(0);
    expect((await host.add(host.pod(), { conf: { service_socket: socket } })).code).toBe(0);
    first.child.kill("SIGTERM");
    const [ended] = (await once(first.child, "close")) as [number];
    expect(ended).toBe(0);
    expect(() => statSync(socket)).toThrow();
  });
});

/** Returns the number of threads in the runtime's pool of the process. */
function poolThreads(pid: number): number {
  const folder = `/proc/${pid}/task`;
  return readdirSync(folder).filter((thread) =>
    readFileSync(join(folder, thread, "comm"), "utf8").startsWith("Bun Pool"),
  ).length;
}
