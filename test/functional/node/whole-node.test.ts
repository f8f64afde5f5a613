// Tests the complete node on a test host: its child processes, its probes, restarts of killed children, and shutdown.
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { SupervisorState } from "../../../src/node/supervisor/supervisor.ts";
import { CALICOCTL, canRun, NODE, TestHost } from "./host.ts";

const ETH0 = [
  "ip link add eth0 type veth peer name eth0p",
  "ip link set eth0p up",
  "ip addr add 192.0.2.11/24 dev eth0",
  "ip link set eth0 up",
];
const ENV = {
  DATASTORE_TYPE: "sqlite",
  NODENAME: "n1",
  CALICO_IPV4POOL_IPIP: "Never",
  FELIX_HEALTHENABLED: "true",
  FELIX_IPV6SUPPORT: "false",
  CALICO_DISABLE_FILE_LOGGING: "true",
};

function stateOf(host: TestHost): SupervisorState | undefined {
  const text = host.read("/var/run/calico/supervisor.json");
  return text === "" ? undefined : (JSON.parse(text) as SupervisorState);
}
const running = (host: TestHost, name: string) =>
  stateOf(host)?.children.find((child) => child.name === name && child.state === "running");
/** A process that has exited may be a zombie; its command line is then empty. */
const isAlive = (pid: number) =>
  existsSync(`/proc/${pid}/cmdline`) && readFileSync(`/proc/${pid}/cmdline`, "utf8") !== "";
const names = (host: TestHost) => stateOf(host)?.children.map(({ name }) => name);

test.skipIf(!canRun)(
  "NB-004 NB-010 NB-011 TC-C35 TC-C38 a node with BIRD: all children run, probes succeed, a killed child is restarted, SIGTERM stops the node",
  async () => {
    await using host = await TestHost.create(ETH0);
    const node = host.start([NODE], ENV);
    try {
      for (const part of ["felix", "confd", "bird", "bird6"]) await eventually(() => running(host, part), 30_000, part);
      expect(host.read("/var/lib/calico/nodename")).toBe("n1");
      await eventually(
        () => host.run([NODE, "-felix-live", "-bird-live", "-bird6-live"], ENV).code === 0,
        30_000,
        "live",
      );
      await eventually(() => host.run([NODE, "-felix-ready", "-bird-ready"], ENV).code === 0, 30_000, "ready");

      const status = host.run([CALICOCTL, "node", "status"], ENV);
      expect(status).toMatchObject({
        code: 0,
        out: expect.stringContaining("Calico process is running.\n\nIPv4 BGP status\nNo IPv4 peers found.\n"),
      });
      const diags = host.run(
        ["sh", "-c", `cd ${host.folder} && ${CALICOCTL} node diags && tar -tzf diags-*.tar.gz`],
        ENV,
      );
      expect(diags.out).toContain("/diagnostics/bird_protocols");
      expect(diags.out).toContain("/diagnostics/supervisor.json");

      const first = running(host, "bird")!.pid!;
      process.kill(first, "SIGKILL");
      const again = await eventually(
        () => {
          const bird = running(host, "bird");
          return bird !== undefined && bird.pid !== first && bird;
        },
        20_000,
        "BIRD is restarted",
      );
      expect(again.restarts).toBe(1);

      const parts = (stateOf(host)?.children ?? []).flatMap(({ pid }) => pid ?? []);
      expect(parts).toHaveLength(4);
      const ended = new Promise<number | null>((resolve) => node.child.once("exit", resolve));
      node.child.kill("SIGTERM");
      expect(await ended).toBe(0);
      for (const pid of parts) expect(() => process.kill(pid, 0)).toThrow();
      expect(node.output).toContain("felix: ");
      expect(host.run([NODE, "-bird-live"], ENV)).toMatchObject({ code: 1, out: expect.stringContaining("not live") });
    } catch (error) {
      console.error(node.output.slice(-4000));
      throw error;
    }
  },
);

test.skipIf(!canRun)(
  "NB-004 NB-005 NB-006 CALICO_NETWORKING_BACKEND, CALICO_NETWORKING and CALICO_DISABLE_FELIX select the children",
  async () => {
    for (const [env, want] of [
      [{ CALICO_NETWORKING_BACKEND: "vxlan" }, ["felix"]],
      [{ CALICO_NETWORKING: "false" }, ["felix"]],
      [{ CALICO_NETWORKING_BACKEND: "none", CALICO_DISABLE_FELIX: "true" }, []],
    ] as [Record<string, string>, string[]][]) {
      await using host = await TestHost.create(ETH0);
      host.start([NODE], { ...ENV, ...env });
      expect(await eventually(() => names(host))).toEqual(want);
    }
  },
);

test.skipIf(!canRun)(
  "children of a killed node keep running; the next node stops them and starts its own, a third node is rejected",
  async () => {
    await using host = await TestHost.create(ETH0);
    const first = host.start([NODE], ENV);
    for (const part of ["felix", "bird"]) await eventually(() => running(host, part), 30_000, part);
    const left = (stateOf(host)?.children ?? []).flatMap(({ pid }) => pid ?? []);
    process.kill(stateOf(host)!.pid!, "SIGKILL");
    await new Promise((resolve) => first.child.once("exit", resolve));
    for (const pid of left) process.kill(pid, 0); // still running

    const second = host.start([NODE], ENV);
    const fresh = (part: string) => {
      const child = running(host, part);
      return child !== undefined && !left.includes(child.pid ?? 0) && child;
    };
    for (const part of ["felix", "confd", "bird", "bird6"]) await eventually(() => fresh(part), 30_000, part);
    expect(left.filter(isAlive)).toEqual([]);
    expect(host.run([NODE], ENV)).toMatchObject({ code: 1, out: expect.stringContaining("another calico-node runs") });
    const ended = new Promise<number | null>((resolve) => second.child.once("exit", resolve));
    second.child.kill("SIGTERM");
    expect(await ended).toBe(0);
  },
);

test.skipIf(!canRun)("each killed child is restarted, and the liveness probe fails meanwhile", async () => {
  await using host = await TestHost.create(ETH0);
  host.start([NODE], ENV);
  const live = ["-felix-live", "-bird-live", "-bird6-live"];
  await eventually(() => host.run([NODE, ...live], ENV).code === 0, 30_000, "live");
  for (const part of ["felix", "confd", "bird6"]) {
    const pid = running(host, part)!.pid!;
    process.kill(pid, "SIGKILL");
    const next = await eventually(
      () => {
        const child = running(host, part);
        return child !== undefined && child.pid !== pid && host.run([NODE, ...live], ENV).code === 0 && child;
      },
      30_000,
      `${part} is restarted`,
    );
    expect(next.restarts).toBe(1);
  }
});

test.skipIf(!canRun)("TC-C37 node run --init-system runs the agent in the foreground until SIGTERM", async () => {
  await using host = await TestHost.create(ETH0);
  const node = host.start([CALICOCTL, "node", "run", "--init-system", "--backend", "vxlan", "--name", "n1"], ENV);
  await eventually(() => running(host, "felix"), 30_000, "felix");
  const ended = new Promise<number | null>((resolve) => node.child.once("exit", resolve));
  node.child.kill("SIGTERM");
  expect(await ended).toBe(0);
});

test.skipIf(!canRun)(
  "TC-C37 node run without systemd starts a background process, which status shows and the next run replaces",
  async () => {
    await using host = await TestHost.create(ETH0);
    const run = () => host.run([CALICOCTL, "node", "run", "--name", "n1", "--ip", "autodetect"], ENV);
    try {
      expect(run()).toMatchObject({ code: 0, out: expect.stringContaining("Calico node started successfully") });
      await eventually(() => running(host, "bird6"), 30_000, "bird6");
      const first = stateOf(host)!.pid!;
      expect(host.run([CALICOCTL, "node", "status"], ENV).out).toContain("Calico process is running.");
      expect(host.read("/proc/sys/net/ipv4/ip_forward").trim()).toBe("1");
      expect(run().code).toBe(0);
      const second = await eventually(() => {
        const pid = stateOf(host)?.pid;
        return pid !== undefined && pid !== first && running(host, "felix") && pid;
      }, 30_000);
      expect(isAlive(first)).toBe(false);
      expect(host.read("/var/log/calico/calico-node.log")).toContain("felix: ");
      process.kill(second, "SIGTERM");
      await eventually(() => !isAlive(second), 20_000, "ended");
    } finally {
      for (const pid of [
        stateOf(host)?.pid ?? 0,
        ...(stateOf(host)?.children ?? []).flatMap(({ pid: own }) => own ?? []),
      ])
        if (pid > 0 && isAlive(pid)) process.kill(pid, "SIGKILL");
    }
  },
  90_000,
);

test.skipIf(!canRun)("NB-001 incompatible and unknown flags exit with code 2", async () => {
  await using host = await TestHost.create([]);
  const both = host.run([NODE, "-felix", "-startup"], ENV);
  expect(both).toMatchObject({ code: 2, err: expect.stringContaining("More than one incompatible argument provided") });
  expect(host.run([NODE, "-nonsense"], ENV)).toMatchObject({
    code: 2,
    err: expect.stringContaining("unknown flag -nonsense"),
  });
  expect(host.run([NODE, "-v"], ENV).code).toBe(0);
  expect(host.run([NODE, "-bird-live", "-felix"], ENV)).toMatchObject({ code: 1 });
});

test.skipIf(!canRun)("NB-002 `calico component` runs the same parts, also if CNI variables are set", async () => {
  await using host = await TestHost.create(ETH0);
  const calico = NODE.replace(/calico-node$/, "calico");
  expect(host.run([calico, "component", "node", "startup"], { ...ENV, CNI_COMMAND: "ADD" }).code).toBe(0);
  expect(host.read("/var/lib/calico/nodename")).toBe("n1");
  expect(host.run([calico, "ctl", "get", "nodes"], ENV).out).toContain("n1");
  expect(host.run([calico, "component", "node", "health", "--bird-live"], ENV).code).toBe(1);
  expect(host.run([NODE, "-show-status"], ENV)).toMatchObject({
    code: 0,
    out: expect.stringContaining("BIRD does not respond"),
  });
});

test.skipIf(!canRun)(
  "NB-015 init mounts missing file systems once, and its exit code shows which one failed",
  async () => {
    await using host = await TestHost.create(["umount -l /sys/fs/bpf 2>/dev/null || true", "mount -t tmpfs none /run"]);
    const types = () =>
      ["/sys/fs/bpf", "/run/calico/cgroup"].map((at) => host.run(["stat", "-fc", "%T", at]).out.trim());
    for (let time = 0; time < 2; time++) {
      expect(host.run([NODE, "-init"], ENV).code).toBe(0);
      expect(types()).toEqual(["bpf_fs", "cgroup2fs"]);
      const mounts = host.read("/proc/self/mountinfo");
      expect(mounts.match(/ \/run\/calico\/cgroup /g)).toHaveLength(1);
    }
    const eBpf = {
      ...ENV,
      KUBERNETES_SERVICE_IPS_PORTS: "10.96.0.1:443",
      KUBERNETES_APISERVER_ENDPOINTS: "192.0.2.1:6443",
    };
    expect(host.run([NODE, "-init"], eBpf).code).toBe(4);
    expect(host.run([NODE, "-init", "-best-effort"], eBpf).code).toBe(0);
    host.run(["umount", "-l", "/run/calico/cgroup"]);
    host.run(["rmdir", "/run/calico/cgroup"]);
    host.run(["touch", "/run/calico/cgroup"]); // a file prevents mkdir
    expect(host.run([NODE, "-init"], ENV).code).toBe(3);
    expect(host.run([NODE, "-init", "--best-effort"], ENV).code).toBe(0);
  },
);

test.skipIf(!canRun)("NB-021 startup waits for the datastore and continues when it responds", async () => {
  await using host = await TestHost.create(ETH0);
  const url = "http://127.0.0.1:2379";
  const start = host.start([NODE, "-startup"], {
    ...ENV,
    DATASTORE_TYPE: "etcdv3",
    ETCD_ENDPOINTS: url,
    WAIT_FOR_DATASTORE: "true",
  });
  await eventually(() => start.output.includes("waiting for the datastore"), 20_000, "waiting");
  const peer = "http://127.0.0.1:2380";
  const etcd = ["etcd", "--data-dir", `${host.folder}/etcd`, "--unsafe-no-fsync", "--log-level", "error"];
  host.start([...etcd, "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer]);
  const code = await new Promise<number | null>((resolve) => start.child.once("exit", resolve));
  expect(code).toBe(0);
});

/** Like a kernel started with `ipv6.disable=1`: /proc/sys/net has no ipv6. */
const WITHOUT_IPV6 = [
  "mkdir /run/calico-test-net",
  "mount -t tmpfs none /run/calico-test-net",
  "for each in core ipv4 netfilter; do mkdir /run/calico-test-net/$each; mount --bind /proc/sys/net/$each /run/calico-test-net/$each; done",
  "mount --rbind /run/calico-test-net /proc/sys/net",
  "umount -l /run/calico-test-net",
  "rmdir /run/calico-test-net",
];

test.skipIf(!canRun)(
  "with IPv6 support on, a host whose kernel has no IPv6 becomes ready without IPv6 rules",
  async () => {
    await using host = await TestHost.create([...ETH0, ...WITHOUT_IPV6]);
    const env = { ...ENV, FELIX_IPV6SUPPORT: "true", CALICO_IPV6POOL_CIDR: "none", CALICO_NETWORKING_BACKEND: "none" };
    host.start([NODE], env);
    await eventually(() => host.run([NODE, "-felix-ready"], env).code === 0, 30_000, "Felix ready");
    expect(host.run(["nft", "list", "tables"]).out).not.toContain("ip6");
    expect(host.run(["nft", "list", "table", "inet", "calico-guard"]).out).toContain("meta nfproto ipv6");
    expect(host.run([CALICOCTL, "get", "ippool", "-o", "name"], env).out.trim()).not.toContain("ipv6");
  },
);
