// Tests the commands other than ADD and DEL, the flags, and the program calico-ipam.
import { describe, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ipam } from "../../../src/ipam/index.ts";
import { defaultDestination } from "../../../src/kernel/index.ts";
import { hostCidr, parseAddress } from "../../../src/lib/ip/ip.ts";
import { canRun, CniHost } from "./cni-host.ts";

describe.skipIf(!canRun)("CHECK", () => {
  test("CI-005 CHECK succeeds for an intact pod, and reports each kind of damage", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    const added = await host.add(pod);
    const check = (conf: Record<string, unknown> = {}) => host.call("CHECK", pod, { conf });
    expect(await check()).toMatchObject({ code: 0, stdout: "OK\n" });
    expect((await check({ prevResult: added.json })).code).toBe(0);
    expect((await check({ prevResult: { ips: [{ address: "10.9.9.9/32" }] } })).json["msg"]).toContain("10.9.9.9");

    const address = parseAddress("10.65.0.128");
    const gateway = parseAddress("169.254.1.1");
    const link = pod.kernel.links.get("eth0")!.index;
    const damages: [string, () => void, () => void][] = [
      [
        "no IPv4 route via its gateway",
        () => pod.kernel.routes.delete({ destination: defaultDestination(4) }),
        () => pod.kernel.routes.add({ destination: defaultDestination(4), link, gateway }),
      ],
      [
        "no route to 10.65.0.128/32 via calicid1",
        () => host.kernel.routes.delete({ destination: hostCidr(address) }),
        () =>
          host.kernel.routes.add({ destination: hostCidr(address), link: host.kernel.links.get("calicid1")!.index }),
      ],
      [
        "lost its address 10.65.0.128",
        () => pod.kernel.addresses.delete({ link, address, length: 32 }),
        () => {
          pod.kernel.addresses.add({ link, address, length: 32 }); // the kernel removed the routes with the last address
          pod.kernel.routes.add({ destination: hostCidr(gateway), link });
          pod.kernel.routes.add({ destination: defaultDestination(4), link, gateway });
        },
      ],
      ["interface calicid1 is down", () => host.kernel.links.set("calicid1", { up: false }), () => {}],
    ];
    for (const [message, damage, repair] of damages) {
      damage();
      const run = await check();
      expect(run).toMatchObject({ code: 1, json: { code: 999 } });
      expect(run.json["msg"]).toContain(message);
      repair();
    }
    await host.del(pod);
    expect((await check()).json["msg"]).toContain("no workload endpoint for container cid1");
  });
});

describe.skipIf(!canRun)("STATUS and GC", () => {
  test("CI-005 STATUS fails if an ADD would fail", async () => {
    await using host = await CniHost.create();
    const status = (conf: Record<string, unknown> = {}) =>
      host.call("STATUS", undefined, { conf: { cniVersion: "1.1.0", ...conf } });
    expect(await status()).toMatchObject({ code: 0, stdout: "" });
    expect((await status({ nodename_file_optional: false, nodename_file: "/absent" })).json).toMatchObject({
      code: 50,
    });
    await host.put("ClusterInformation", "default", { datastoreReady: false });
    expect((await status()).json).toMatchObject({ code: 50, cniVersion: "1.1.0" });
  });

  test("CI-005 GC removes what belongs to no valid container, and nothing of other nodes and networks", async () => {
    await using host = await CniHost.create();
    const conf = { cniVersion: "1.1.0" };
    const [alive, dead, lost] = [host.pod("alive"), host.pod("dead"), host.pod("lost")];
    for (const pod of [alive, dead, lost]) expect((await host.add(pod, { conf })).code).toBe(0);
    // "lost" has an address and no endpoint; another node and another network have both.
    await host.store.delete({
      type: "resource",
      kind: "WorkloadEndpoint",
      namespace: "default",
      name: "n1-cni-lost-eth0",
    });
    await host.put("Node", "n2", {});
    const other = host.pod("other");
    await host.add(other, { conf: { ...conf, nodename: "n2" } });
    const foreign = host.pod("foreign");
    await host.add(foreign, { conf: { ...conf, name: "net2" } });

    const gc = (attachments: unknown) =>
      host.call("GC", undefined, { conf: { ...conf, "cni.dev/valid-attachments": attachments } });
    expect((await gc("nonsense")).json).toMatchObject({ code: 6 });
    expect(await gc([{ containerID: "alive", ifname: "eth0" }])).toMatchObject({ code: 0, stdout: "" });
    expect((await host.handles()).sort()).toEqual(["net1.alive", "net1.other", "net2.foreign"]);
    expect([...(await host.all("WorkloadEndpoint")).keys()].sort()).toEqual([
      "n1-cni-alive-eth0",
      "n1-cni-foreign-eth0",
      "n2-cni-other-eth0",
    ]);
    expect(host.workloadLinks().sort()).toEqual(["calialive", "califoreign", "caliother"]);
  });

  test("CI-077 GC does not release a virtual machine's addresses, even if it has no container", async () => {
    await using host = await CniHost.create();
    await new Ipam({ datastore: host.store }).autoAssign({
      ...{ version: 4, count: 1, host: "n1", use: "Workload", handleId: "net1.vmi.ns1.vm1" },
      attributes: { node: "n1", namespace: "ns1", pod: "virt-launcher-vm1-a" },
    });
    const conf = { cniVersion: "1.1.0", "cni.dev/valid-attachments": [] };
    expect(await host.call("GC", undefined, { conf })).toMatchObject({ code: 0, stdout: "" });
    expect(await host.handles()).toEqual(["net1.vmi.ns1.vm1"]);
  });
});

describe.skipIf(!canRun)("programs and flags", () => {
  test("CI-001 the executable's name selects the plugin; -v prints the version", async () => {
    await using host = await CniHost.create();
    const { collect, DIST } = await import("./cni-host.ts");
    const run = (file: string, ...args: string[]) => {
      const child = host.start(`${DIST}/${file}`, args, {});
      child.stdin?.end();
      return collect(child);
    };
    for (const file of ["calico", "calico-ipam"]) {
      expect(await run(file, "-v")).toMatchObject({ code: 0, stdout: expect.stringMatching(/v\d+\.\d+/) });
    }
    // Called without CNI_COMMAND: `calico` prints its sub-commands and `calico-ipam` its version, both on standard error.
    expect(await run("calico")).toMatchObject({ code: 0, stdout: "", stderr: expect.stringContaining("calico lab") });
    expect(await run("calico-ipam")).toMatchObject({ code: 0, stdout: "" });
    expect((await run("calico-ipam", "-x")).code).toBe(2);
  });

  test("CI-002 -t checks whether the datastore responds and is ready", async () => {
    await using host = await CniHost.create();
    const { collect, DIST } = await import("./cni-host.ts");
    const flag = async (conf: Record<string, unknown> = {}) => {
      const child = host.start(`${DIST}/calico`, ["-t"], {});
      const done = collect(child);
      child.stdin?.end(JSON.stringify(host.conf(conf)));
      return done;
    };
    expect(await flag()).toMatchObject({ code: 0, stdout: "" });
    const gone = await flag({ datastore_type: "etcdv3", etcd_endpoints: "http://127.0.0.1:9" });
    expect(gone).toMatchObject({ code: 1, json: { code: 100, msg: "data store connection failed" } });
    await host.put("ClusterInformation", "default", { datastoreReady: false });
    expect((await flag()).json["details"]).toContain("not ready");
  });

  test("CI-005 VERSION lists the supported versions, and 1.1.0 only if the runtime uses it", async () => {
    await using host = await CniHost.create();
    for (const program of ["calico", "calico-ipam"] as const) {
      const versions = async (stdin: string) =>
        (await host.call("VERSION", undefined, { program, stdin })).json["supportedVersions"] as string[];
      const old = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"];
      expect(await versions(`{"cniVersion":"1.0.0"}`)).toEqual(old);
      expect(await versions(`{"cniVersion":"1.1.0"}`)).toEqual([...old, "1.1.0"]);
      expect(await versions("")).toEqual([...old, "1.1.0"]);
    }
  });

  test("CI-045 calico-ipam assigns any address or a requested one, rejects one that is assigned, and releases", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    const ipam = (command: string, id: string, args = "", conf: Record<string, unknown> = {}) =>
      host.call(command, pod, { program: "calico-ipam", env: { CNI_CONTAINERID: id, CNI_ARGS: args }, conf });
    expect((await ipam("ADD", "a")).json).toEqual({ cniVersion: "1.0.0", ips: [{ address: "10.65.0.128/26" }] });
    expect((await ipam("ADD", "b", "IP=10.65.0.9")).json["ips"]).toEqual([{ address: "10.65.0.9/32" }]);
    expect((await ipam("ADD", "c", "IP=10.65.0.9")).json["msg"]).toContain("resource already exists: 10.65.0.9");
    expect((await ipam("ADD", "d", "FOO=bar")).json["msg"]).toContain("unknown args");
    const pools = { ipam: { type: "calico-ipam", ipv4_pools: ["nope"] } };
    expect((await ipam("ADD", "e", "", pools)).json["msg"]).toContain('error parsing pool "nope"');
    for (const id of ["a", "b", "never"]) expect(await ipam("DEL", id)).toMatchObject({ code: 0, stdout: "" });
    expect(await host.allocations()).toEqual([]);
  });

  test("CI-010 the log file contains the error, but not the configuration", async () => {
    await using host = await CniHost.create();
    const path = `${host.folder}/log/cni.log`;
    const secret = "s3cret-token";
    await host.add(host.pod("cid1"), {
      conf: { log_file_path: path, log_level: "debug", device_type: "x", policy: { k8s_auth_token: secret } },
    });
    const text = await Bun.file(path).text();
    expect(text).toContain("ADD failed");
    expect(text).not.toContain(secret);
  });
});

describe.skipIf(!canRun)("calico cni-service", () => {
  test("reports in one line that it has no access to the datastore", () => {
    const folder = mkdtempSync(join(tmpdir(), "cni-rights-"));
    try {
      chmodSync(folder, 0o755);
      const file = join(folder, "calico.db");
      writeFileSync(file, "", { mode: 0o600 });
      const nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
      const env = { PATH: process.env["PATH"] ?? "", DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: file };
      const calico = join(import.meta.dir, "../../../dist/calico");
      const { exitCode, stderr } = Bun.spawnSync([...nobody, calico, "cni-service"], { env });
      expect(exitCode).toBe(1);
      expect(stderr.toString()).toMatch(/^[^\n]*no permission to read and write the file[^\n]*\n$/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
