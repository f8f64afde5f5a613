// Tests failures: the error code on standard output, and that nothing remains.
import { describe, expect, test } from "bun:test";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { parseCidr } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CallOptions, canRun, CniHost, DIST, k8s } from "./cni-host.ts";

async function expectClean(host: CniHost): Promise<void> {
  expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
  expect((await host.all("WorkloadEndpoint")).size).toBe(0);
}

describe.skipIf(!canRun)("failures of ADD", () => {
  test("CI-039 if the interface name is in use, ADD fails and the address is released", async () => {
    await using host = await CniHost.create();
    const pod = host.pod();
    pod.kernel.links.create({ name: "eth0", type: { kind: "veth", peer: { name: "mine" } } });
    const run = await host.add(pod);
    expect(run).toMatchObject({ code: 1, json: { code: 999 } });
    expect(run.json["msg"]).toContain("the pod has an interface eth0 already (EEXIST)");
    expect(pod.kernel.links.get("mine")).toBeDefined(); // another program created it
    await expectClean(host);
  });

  test("CI-039 if the namespace is missing, ADD fails and the address is released", async () => {
    await using host = await CniHost.create();
    const run = await host.add(host.pod(), { env: { CNI_NETNS: "/run/netns/none" } });
    expect(run).toMatchObject({ code: 1, json: { code: 999 } });
    expect(run.json["msg"]).toContain("/run/netns/none");
    await expectClean(host);
  });

  test("CI-020 CI-039 if the host has a route to the address by another interface, ADD fails and names that interface", async () => {
    await using host = await CniHost.create();
    host.kernel.links.create({ name: "other", up: true, type: { kind: "veth", peer: { name: "otherp" } } });
    host.kernel.links.set("otherp", { up: true });
    host.kernel.routes.add({ destination: parseCidr("10.65.0.128/32"), link: host.kernel.links.get("other")!.index });
    const run = await host.add(host.pod());
    expect(run.json["msg"]).toContain("route to 10.65.0.128/32 by other");
    await expectClean(host);
  });

  test("a SQLite datastore that does not exist is not created, and the runtime may try again later", async () => {
    await using host = await CniHost.create();
    const sqlite_path = join(host.folder, "none/calico.db");
    const conf = { cniVersion: "1.1.0", sqlite_path };
    const msg = expect.stringContaining(
      `datastore ${sqlite_path} is unavailable: there is no such file; the node agent`,
    );
    const pod = host.pod();
    for (const command of ["ADD", "DEL", "CHECK"])
      expect(await host.call(command, pod, { conf })).toMatchObject({ code: 1, json: { code: 11, msg } });
    for (const command of ["ADD", "DEL"])
      expect(await host.call(command, pod, { conf, program: "calico-ipam" })).toMatchObject({
        code: 1,
        json: { code: 11, msg },
      });
    for (const program of ["calico", "calico-ipam"] as const)
      expect(await host.call("STATUS", undefined, { conf, program })).toMatchObject({
        code: 1,
        json: { code: 50, msg },
      });
    expect(existsSync(join(host.folder, "none"))).toBeFalse();
    await expectClean(host);
  });

  test("CI-015 a workload whose endpoint would be invalid is rejected, and gets no address", async () => {
    await using host = await CniHost.create();
    for (const id of ["c.d_e-f", "ABC"]) {
      const pod = host.pod(id);
      const run = await host.add(pod);
      expect(run).toMatchObject({
        code: 1,
        json: { code: 999, msg: expect.stringContaining("cannot name a workload") },
      });
      await expectClean(host);
      expect(await host.del(pod)).toMatchObject({ code: 0 });
    }
    const labelled = (key: string, value: string) => ({
      conf: { args: { "org.apache.mesos": { network_info: { labels: { labels: [{ key, value }] } } } } },
    });
    for (const [key, value, text] of [
      ["ключ", "x", '"": "x" cannot be a label'],
      ["k", "x".repeat(64), "cannot be a label"],
      ["projectcalico.org/namespace", "Shop", "cannot be a workload's namespace"],
    ] as const)
      expect(await host.add(host.pod(), labelled(key, value))).toMatchObject({
        code: 1,
        json: { code: 999, msg: expect.stringContaining(text) },
      });
    expect((await host.all("Profile")).size).toBe(0);
    const dotted = await host.add(host.pod("a.b"), k8s("shop", "web"));
    expect(dotted).toMatchObject({
      code: 1,
      json: { msg: "a.b cannot be stored as a container's ID: want letters, digits and -" },
    });
    await expectClean(host);
  });

  test("CI-047 a dual-stack pod gets addresses of both families or none", async () => {
    await using host = await CniHost.create();
    await host.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122, disabled: true });
    const conf = { ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } };
    const run = await host.add(host.pod(), { conf });
    expect(run).toMatchObject({ code: 1, json: { code: 999 } });
    const pod = host.pod();
    await host.put("IPPool", "p6", { cidr: "fd00:65::/122", blockSize: 122 });
    await host.put("IPReservation", "all6", { reservedCIDRs: ["fd00:65::/122"] });
    const failed = await host.add(pod, { conf });
    expect(failed.json["msg"]).toContain("failed to request IPv6 addresses: Assigned 0 out of 1");
    await host.del(pod, { conf });
    await expectClean(host);
  });

  test("if the pool is exhausted, ADD fails and nothing remains; a released address is assigned to the next pod", async () => {
    await using host = await CniHost.create();
    await host.put("IPPool", "p4", { cidr: "10.65.0.0/30", blockSize: 30 });
    const pods = [host.pod(), host.pod(), host.pod(), host.pod()];
    for (const pod of pods) expect(await host.add(pod)).toMatchObject({ code: 0 });
    const late = host.pod();
    const rejected = await host.add(late);
    expect(rejected).toMatchObject({ code: 1, json: { code: 999 } });
    expect(rejected.json["msg"]).toContain("failed to request IPv4 addresses: Assigned 0 out of 1");
    expect(late.kernel.links.get("eth0")).toBeUndefined();
    expect([host.workloadLinks().length, (await host.allocations()).length]).toEqual([4, 4]);
    expect((await host.del(pods[2]!)).code).toBe(0);
    expect(await host.add(late)).toMatchObject({ code: 0 });
    for (const pod of [late, ...pods]) expect((await host.del(pod)).code).toBe(0);
    await expectClean(host);
  });

  test("CI-006 errors of the runtime's request have their codes: environment 4, configuration 6 and 7, version 1", async () => {
    await using host = await CniHost.create();
    const pod = host.pod();
    const wrong: readonly [CallOptions, number, string][] = [
      [{ env: { CNI_CONTAINERID: undefined } }, 4, "CNI_CONTAINERID"],
      [{ env: { CNI_NETNS: "" } }, 4, "CNI_NETNS"],
      [{ env: { CNI_IFNAME: undefined } }, 4, "CNI_IFNAME"],
      [{ env: { CNI_PATH: undefined } }, 4, "CNI_PATH"],
      [{ env: { CNI_IFNAME: "a/b" } }, 4, "interface name"],
      [{ env: { CNI_CONTAINERID: "../etc" } }, 4, "containerID"],
      [{ stdin: "" }, 6, "standard input is empty"],
      [{ stdin: "{" }, 6, "network config"],
      [{ conf: { name: "" } }, 7, "missing network name"],
      [{ conf: { cniVersion: "9.0.0" } }, 1, "incompatible CNI versions"],
    ];
    for (const [options, code, text] of wrong) {
      const run = await host.add(pod, options);
      expect([text, run.code, run.json["code"]]).toEqual([text, 1, code]);
      expect(run.stdout).toContain(text);
    }
    const unknown = await host.call("DANCE", pod);
    expect(unknown).toMatchObject({ code: 1, json: { code: 4 } });
    await expectClean(host);
  });

  test("CI-013 ADD and DEL fail if the datastore is not ready", async () => {
    await using host = await CniHost.create();
    await host.put("ClusterInformation", "default", { datastoreReady: false });
    for (const command of ["ADD", "DEL"])
      expect((await host.call(command, host.pod())).json).toMatchObject({
        code: 999,
        msg: "Calico is currently not ready to process requests",
      });
  });

  test("CI-028 CI-038 features that require a pod are rejected without one, and so are invalid dataplanes and timeouts", async () => {
    await using host = await CniHost.create();
    const gate = await host.add(host.pod(), { conf: { feature_control: { ip_addrs_no_ipam: true } } });
    expect(gate.json["msg"]).toBe("requested feature is not supported for this runtime: ip_addrs_no_ipam");
    const plane = await host.add(host.pod(), { conf: { dataplane_options: { type: "foo" } } });
    expect(plane.json["msg"]).toBe("invalid dataplane type: foo");
    // A negative timeout is rejected only for pods, as in Calico.
    const negative = { conf: { policy_setup_timeout_seconds: -1 } };
    const wait = await host.add(host.pod(), { ...negative, ...k8s("shop", "web") });
    expect(wait.json["msg"]).toContain("policy_setup_timeout_seconds");
    expect(await host.add(host.pod(), negative)).toMatchObject({ code: 0 });
  });

  test("an IPAM plugin must be a file name in CNI_PATH, not a path", async () => {
    await using host = await CniHost.create();
    for (const type of ["../../../bin/sh", "/bin/sh", "..", "no such"]) {
      const run = await host.add(host.pod(), { conf: { ipam: { type } } });
      expect(run.json["msg"]).toMatch(/invalid plugin name|failed to find plugin/);
    }
    expect((await host.add(host.pod(), { conf: { ipam: {} } })).json["msg"]).toBe("no plugin name provided");
  });

  test("the plugin's own namespace is rejected with code 8, unless CNI_NETNS_OVERRIDE is set", async () => {
    await using host = await CniHost.create();
    const own = { CNI_NETNS: `/run/netns/${host.name}` };
    expect((await host.add(host.pod(), { env: own })).json).toMatchObject({ code: 8 });
    expect((await host.del(host.pod(), { env: own })).json).toMatchObject({ code: 8 });
    expect((await host.del(host.pod(), { env: { ...own, CNI_NETNS_OVERRIDE: "1" } })).code).toBe(0);
  });

  test("CI-006 for any invalid standard input, the output is one JSON error", async () => {
    await using host = await CniHost.create();
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.string(),
          fc.jsonValue().map((v) => JSON.stringify(v)),
        ),
        async (stdin) => {
          const run = await host.call("ADD", undefined, {
            stdin,
            env: { CNI_CONTAINERID: "c", CNI_NETNS: "/none", CNI_IFNAME: "eth0" },
          });
          expect(run.code).toBe(1);
          expect(run.json["code"]).toBeNumber();
          expect(run.json["msg"]).toBeString();
        },
      ),
      { numRuns: 15 },
    );
    await expectClean(host);
  });
});

describe.skipIf(!canRun)("a killed ADD", () => {
  test("CI-039 leaves nothing that DEL does not remove, regardless of when it is killed", async () => {
    await using host = await CniHost.create();
    let attached = 0;
    for (let ms = 1; ms <= 33; ms += 2) {
      const pod = host.pod(`kill${ms}`);
      const run = await host.add(pod, { killAfterMs: ms, ...(ms % 4 === 1 ? k8s("ns1", `p${ms}`) : {}) });
      if (run.code === 0) attached++;
      const del = await host.del(pod, ms % 4 === 1 ? k8s("ns1", `p${ms}`) : {});
      expect(del).toMatchObject({ code: 0 });
      expect(pod.kernel.links.get("eth0")).toBeUndefined();
      await expectClean(host);
    }
    expect(attached).toBeLessThan(17);
  }, 120_000);
});

const SILENT_API = JSON.stringify({
  apiVersion: "v1",
  kind: "Config",
  clusters: [{ name: "c", cluster: { server: "http://192.0.2.1:6443" } }],
  contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
  "current-context": "c",
  users: [{ name: "u", user: { token: "t" } }],
});

describe.skipIf(!canRun)("a datastore that does not respond", () => {
  test("ADD and DEL fail within the deadline with code 11: try again later", async () => {
    await using host = await CniHost.create();
    host.addSilentAddress();
    for (const endpoint of ["http://127.0.0.1:9", "http://192.0.2.1:2379"])
      for (const command of ["ADD", "DEL"]) {
        const conf = { datastore_type: "etcdv3", etcd_endpoints: endpoint, datastore_timeout_seconds: 2 };
        const start = performance.now();
        const run = await host.call(command, host.pod(), { conf });
        expect(run).toMatchObject({ code: 1, json: { code: 11 } });
        expect(performance.now() - start).toBeLessThan(4000);
      }
  }, 60_000);

  test("the proxy of the runtime's environment is not used for the datastore", async () => {
    await using host = await CniHost.create();
    const requests = { proxy: 0, etcd: 0 };
    const listen = (server: keyof typeof requests) => {
      const fetch = (): Response => (requests[server]++, new Response("no", { status: 502 }));
      const serve = (): unknown => Bun.serve({ hostname: "127.0.0.1", port: 0, fetch });
      return host.handle.run(serve as () => never) as ReturnType<typeof Bun.serve>;
    };
    using proxy = listen("proxy");
    using etcd = listen("etcd");
    const url = `http://127.0.0.1:${proxy.port}`;
    const conf = {
      datastore_type: "etcdv3",
      etcd_endpoints: `http://127.0.0.1:${etcd.port}`,
      datastore_timeout_seconds: 1,
    };
    const env = { HTTP_PROXY: url, http_proxy: url, HTTPS_PROXY: url, ALL_PROXY: url };
    expect(await host.add(host.pod(), { conf, env })).toMatchObject({ json: { code: 11 } });
    expect([requests.proxy, requests.etcd > 0]).toEqual([0, true]);
  }, 60_000);

  for (const path of ["in process", "by the service"])
    test(`if the Kubernetes API does not respond, concurrent requests ${path} fail within the deadline`, async () => {
      await using host = await CniHost.create();
      host.addSilentAddress();
      const kubeconfig = join(host.folder, "kubeconfig");
      writeFileSync(kubeconfig, SILENT_API);
      const conf: Record<string, unknown> = {
        datastore_type: "kubernetes",
        kubernetes: { kubeconfig },
        policy: { type: "k8s" },
        datastore_timeout_seconds: 3,
      };
      if (path === "by the service") {
        conf["service_socket"] = join(host.folder, "run/cni.sock");
        const env = {
          DATASTORE_TYPE: "kubernetes",
          KUBECONFIG: kubeconfig,
          CALICO_API_GROUP: "crd.projectcalico.org/v1",
        };
        const args = ["cni-service", "--socket", String(conf["service_socket"])];
        let log = "";
        host.start(join(DIST, "calico"), args, env).stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
        await eventually(() => log.includes("listens"), 20_000);
      }
      for (const command of ["ADD", "DEL"]) {
        const start = performance.now();
        const calls = Array.from({ length: 3 }, (_, i) =>
          host.call(command, host.pod(), { conf, ...k8s("ns1", `p${i}`) }),
        );
        const runs = await Promise.all(calls);
        expect(runs.map(({ json }) => json["code"])).toEqual(runs.map(() => 11));
        expect(performance.now() - start).toBeLessThan(4000);
      }
    }, 60_000);

  test("concurrent requests do not wait for each other's deadlines", async () => {
    await using host = await CniHost.create();
    host.addSilentAddress();
    const conf = { datastore_type: "etcdv3", etcd_endpoints: "http://192.0.2.1:2379", datastore_timeout_seconds: 3 };
    for (const command of ["ADD", "DEL"]) {
      const start = performance.now();
      const runs = await Promise.all(Array.from({ length: 6 }, () => host.call(command, host.pod(), { conf })));
      expect(runs.map(({ json }) => json["code"])).toEqual(runs.map(() => 11));
      expect(performance.now() - start).toBeLessThan(6000); // sequentially it would take twelve seconds
    }
  }, 60_000);
});
