// The service that a plugin starts where no agent answers: when it comes, what it has of its caller (nothing), whom it
// serves, and when it goes.
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, test } from "bun:test";
import { openSqlite } from "../../../src/datastore/index.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { canRun, CniHost, collect, DIST, type PluginRun } from "./cni-host.ts";
import { OnDemand } from "./on-demand.ts";

const leftOf = async (host: CniHost) => [host.workloadLinks(), await host.allocations(), await host.handles()];
const NOTHING = [[], [], []];
/** What it has open; some of it may be closed while we look. */
function filesOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return [];
    }
  });
}

describe.skipIf(!canRun)("a service on demand", () => {
  test("is started by the first call, which does its work itself; the next calls are served by it", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host);
    const pod = host.pod("first");
    // Ends with the plugin: what it started keeps neither pipe open.
    const added = await demand.add(pod);
    expect(added).toMatchObject({ code: 0, json: { ips: [{ address: "10.65.0.128/32" }] } });
    const pid = await eventually(() => demand.running()[0]); // a program that is being started has no arguments yet
    await eventually(() => demand.listening() === pid);
    expect(demand.served()).toEqual([]);
    expect((await demand.call("CHECK", pod, { conf: { prevResult: added.json } })).stdout).toBe("OK\n");
    expect(await demand.del(pod)).toMatchObject({ code: 0, stdout: "" });
    expect(demand.served()).toEqual(["CHECK first", "DEL first"]);
    const second = host.pod("second");
    expect((await demand.add(second)).json["ips"]).toHaveLength(1);
    expect(demand.running()).toEqual([pid]);
    expect(await demand.del(second)).toMatchObject({ code: 0, stdout: "" });
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("has nothing of its caller, nor of the pods it served", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host, 60, { policy: { k8s_auth_token: "s3cret" } });
    const pod = host.pod();
    // A container runtime that forgets to keep its own files to itself.
    const env = {
      PATH: process.env["PATH"],
      CNI_COMMAND: "ADD",
      CNI_PATH: DIST,
      CNI_CONTAINERID: pod.containerId,
      CNI_NETNS: pod.netns,
      CNI_IFNAME: "eth0",
      LEAKED: "s3cret",
    };
    const held = openSync(join(host.folder, "held"), "w");
    const stdio = ["pipe", "pipe", "pipe", held, "pipe", pod.handle.fd];
    const child = host.handle.run(
      () => spawn(join(DIST, "calico"), [], { env, cwd: host.folder, stdio: stdio as never }) as never,
    ) as ReturnType<typeof spawn>;
    const run = collect(child);
    child.stdin?.end(JSON.stringify(host.conf(demand.conf)));
    expect(await run).toMatchObject({ code: 0 });
    const pid = await eventually(() => demand.listening());
    for (let i = 0; i < 3; i++) {
      const other = host.pod();
      expect(await demand.add(other)).toMatchObject({ code: 0 });
      expect(await demand.del(other)).toMatchObject({ code: 0 });
    }
    expect(await demand.del(pod)).toMatchObject({ code: 0 });
    const open = filesOf(pid);
    expect(open.filter((file) => /net:|pipe:|memfd|deleted|held|ipam\.lock/.test(file))).toEqual([]);
    expect(open.filter((file) => file === "/dev/null")).toHaveLength(3);
    expect(open.filter((file) => file.startsWith(host.folder))).toEqual([`${demand.socket}.stand-in`]);
    expect(readlinkSync(`/proc/${pid}/cwd`)).toBe("/");
    const { environ, cmdline, stat } = Object.fromEntries(
      ["environ", "cmdline", "stat"].map((name) => [name, readFileSync(`/proc/${pid}/${name}`, "utf8")]),
    );
    expect(environ?.split("\0").filter((line) => !/^(PATH=.*|BUN_JSC_useDFGJIT=0)?$/.test(line))).toEqual([]);
    expect(cmdline).not.toContain("s3cret");
    expect(demand.log()).not.toContain("s3cret");
    const fields = stat!.replace(/^.*\) /, "").split(" ");
    expect([fields[2], fields[3]].map(Number)).toEqual([pid, pid]); // a group and a session of its own
    expect(readdirSync(host.folder).filter((name) => name.startsWith("cni.sock"))).toEqual([
      "cni.sock",
      "cni.sock.stand-in",
    ]);
  }, 60_000);

  test("keeps no thread in the namespace of a pod, which would live as long", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host);
    const pid = await demand.started();
    const pods = Array.from({ length: 10 }, () => host.pod());
    for (let round = 0; round < 10; round++)
      for (const command of ["ADD", "DEL"])
        for (const run of await Promise.all(pods.map((pod) => demand.call(command, pod)))) expect(run.code).toBe(0);
    const namespaces = readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
      try {
        return [readlinkSync(`/proc/${pid}/task/${thread}/ns/net`)];
      } catch {
        return []; // it has ended
      }
    });
    expect(new Set(namespaces)).toEqual(new Set([readlinkSync(`/proc/${pid}/ns/net`)]));
  }, 60_000);

  test("ends when nobody has asked for as long as the configuration says, and leaves nothing", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host, 2);
    const pid = await demand.started();
    const began = performance.now();
    await demand.untilNone();
    expect(performance.now() - began).toBeWithin(900, 10_000);
    expect(demand.log()).toContain(`why="nobody asks"`);
    expect(readdirSync(host.folder).filter((name) => name.startsWith("cni.sock"))).toEqual([]);
    expect(await demand.started()).not.toBe(pid);
  }, 60_000);

  for (const signal of ["SIGTERM", "SIGINT"] as const)
    test(`ends by ${signal} at once`, async () => {
      await using host = await CniHost.create();
      using demand = new OnDemand(host);
      process.kill(await demand.started(), signal);
      await demand.untilNone(3000);
      expect(demand.log()).toContain(`why="${signal}"`);
      expect(readdirSync(host.folder).filter((name) => name.startsWith("cni.sock"))).toEqual([]);
    }, 60_000);

  test("comes without being asked for, for ten seconds", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host, 60, { service_idle_seconds: undefined });
    const pid = await demand.started();
    expect(readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")).toContain("10");
    expect(demand.log()).toContain("idleSeconds=10");
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("is not started where the configuration wants none, nor by what is asked all the time, nor for what failed", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host);
    const pod = host.pod();
    const status = { cniVersion: "1.1.0" };
    for (const conf of [{ service_idle_seconds: 0 }, { service_socket: "" }]) {
      expect(await demand.add(pod, { conf })).toMatchObject({ code: 0 });
      expect(await demand.del(pod, { conf })).toMatchObject({ code: 0 });
    }
    expect(await demand.call("VERSION", undefined)).toMatchObject({ code: 0 });
    expect(await demand.call("STATUS", undefined, { conf: status })).toMatchObject({ code: 0 });
    expect(await demand.add(pod, { conf: { service_idle_seconds: 3601 } })).toMatchObject({ json: { code: 999 } });
    expect(await demand.add(pod, { conf: { device_type: "x" } })).toMatchObject({ code: 1 });
    // No service could do that.
    const ipam = { type: "host-local", subnet: "10.70.0.0/24", dataDir: `${host.folder}/hl` };
    expect(await demand.add(pod, { conf: { ipam } })).toMatchObject({ code: 0 });
    expect(await demand.del(pod, { conf: { ipam } })).toMatchObject({ code: 0 });
    // Only the environment knows the file: what is started would not.
    const inEnvironment = { conf: { sqlite_path: undefined }, env: { CALICO_SQLITE_PATH: host.sqlitePath } };
    expect(await demand.add(pod, inEnvironment)).toMatchObject({ code: 0 });
    expect(await demand.del(pod, inEnvironment)).toMatchObject({ code: 0 });
    expect(demand.running()).toEqual([]);
    expect(existsSync(`${demand.socket}.stand-in`)).toBeFalse();
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("that cannot be started is no reason to fail", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host, 60, { service_socket: "/proc/nowhere/cni.sock" });
    const pod = host.pod();
    expect(await demand.add(pod)).toMatchObject({ code: 0 });
    expect(await demand.del(pod)).toMatchObject({ code: 0 });
    expect(demand.log()).toContain("The CNI service could not be started");
  }, 60_000);

  test("says in one line what is wrong to who starts it by hand", () => {
    const calico = join(DIST, "calico");
    const run = (stdin: string, ...args: string[]) =>
      Bun.spawnSync([calico, "cni-service", ...args], { env: {}, stdin: Buffer.from(stdin) });
    const none = run("garbage", "--idle", "5", "--socket", join(tmpdir(), `cni-none-${process.pid}.sock`));
    expect([none.exitCode, none.stderr.toString()]).toEqual([
      1,
      expect.stringMatching(/^calico cni-service: standard input holds no network configuration: [^\n]*\n$/),
    ]);
    for (const idle of ["0", "-1", "x", "1.5", "3601"]) expect(run("{}", "--idle", idle).exitCode).toBe(2);
  });

  test("is one, however many calls come at once", async () => {
    await using host = await CniHost.create();
    // On a busy machine thirty plugins that do it all themselves take their time.
    using demand = new OnDemand(host, 60, { datastore_timeout_seconds: 60 });
    const pods = Array.from({ length: 30 }, () => host.pod());
    const seen = new Set<number>();
    let isDone = false;
    const watching = (async () => {
      for (; !isDone; await Bun.sleep(50)) for (const pid of demand.running()) seen.add(pid);
    })();
    const runs = await Promise.all(pods.map((pod) => demand.add(pod)));
    await eventually(() => demand.listening());
    isDone = true;
    await watching;
    expect(runs.filter(({ code }) => code !== 0)).toEqual([]);
    const addresses = runs.map((run) => (run.json["ips"] as { address: string }[])[0]!.address);
    expect(new Set(addresses).size).toBe(30);
    expect([...seen]).toEqual(demand.running());
    expect(demand.log().match(/The CNI service listens/g)).toHaveLength(1);
    const gone = await Promise.all(pods.map((pod) => demand.del(pod)));
    expect(gone.filter(({ code }) => code !== 0)).toEqual([]);
    expect(new Set(demand.served().filter((call) => call.startsWith("DEL"))).size).toBe(30);
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 120_000);

  test("leaves calls about another datastore, or from another place, to the plugin", async () => {
    await using host = await CniHost.create();
    await using other = await CniHost.create();
    using demand = new OnDemand(host);
    const pid = await demand.started();
    const before = demand.served().length;
    const unasked = { service_idle_seconds: 0 }; // who wants one of its own would be made room for
    const elsewhere = { conf: { ...unasked, sqlite_path: other.sqlitePath } };
    const pod = host.pod();
    expect(await demand.add(pod, elsewhere)).toMatchObject({ code: 0 });
    expect([await host.allocations(), (await other.allocations()).length]).toEqual([[], 1]);
    expect(await demand.del(pod, elsewhere)).toMatchObject({ code: 0 });
    // The other host's plugin finds the same socket, but its wires belong into its own namespace.
    const theirs = other.pod();
    const conf = { ...demand.conf, ...unasked, sqlite_path: host.sqlitePath };
    expect(await other.add(theirs, { conf, isAmongUs: true })).toMatchObject({ code: 0 });
    expect([host.workloadLinks(), other.workloadLinks().length]).toEqual([[], 1]);
    expect(await other.del(theirs, { conf, isAmongUs: true })).toMatchObject({ code: 0 });
    // And who sees other files may see another one at the same path.
    const mounted = host.pod();
    expect(await demand.add(mounted, { isAmongUs: false, conf: unasked })).toMatchObject({ code: 0 });
    expect(await demand.del(mounted, { isAmongUs: false, conf: unasked })).toMatchObject({ code: 0 });
    // What the environment adds counts too, and programs of the host are not for a service.
    const ipam = { type: "host-local", subnet: "10.70.0.0/24", dataDir: `${host.folder}/hl` };
    expect(await demand.add(pod, { conf: { ...unasked, ipam } })).toMatchObject({ code: 0 });
    expect(await demand.del(pod, { conf: { ...unasked, ipam } })).toMatchObject({ code: 0 });
    expect(demand.served()).toHaveLength(before);
    expect(demand.running()).toEqual([pid]);
    for (const why of ["another datastore", "another network namespace", "sees other files", "program of the host"])
      expect(demand.log()).toMatch(new RegExp(`left to the plugin.* why="[^"]*${why}`));
    expect([...(await leftOf(host)), ...(await leftOf(other))]).toEqual([...NOTHING, ...NOTHING]);
  }, 60_000);

  /** Two calls of one shell: $0 is the executable, CONF the configuration, FIRST and SECOND are containers with their pods. */
  const twoCalls = async (host: CniHost, demand: OnDemand, script: string, env: Record<string, string>) => {
    const pods = [host.pod(), host.pod()] as const;
    const child = host.startAmongUs("sh", ["-c", script, join(DIST, "calico")], {
      CNI_COMMAND: "ADD",
      CNI_PATH: DIST,
      CNI_IFNAME: "eth0",
      FIRST: `CNI_CONTAINERID=${pods[0].containerId} CNI_NETNS=${pods[0].netns}`,
      SECOND: `CNI_CONTAINERID=${pods[1].containerId} CNI_NETNS=${pods[1].netns}`,
      UNTIL_SOCKET: `for i in $(seq 200); do [ -S ${demand.socket} ] && break; sleep 0.05; done`,
      ...env,
    });
    const run = await collect(child);
    expect(run).toMatchObject({ code: 0 });
    return pods;
  };

  test("leaves a call to the plugin whose root is the same folder below other mounts", async () => {
    await using host = await CniHost.create();
    await using other = await CniHost.create();
    using demand = new OnDemand(host);
    await other.put("IPPool", "p4", { cidr: "10.66.0.0/24", blockSize: 26 }); // both are routed to on one host
    const [root, data] = [join(host.folder, "root"), join(host.folder, "data")];
    for (const folder of [root, data]) mkdirSync(folder);
    symlinkSync(other.sqlitePath, join(data, "calico.db")); // what the second call finds, the mount not being there
    const script = `set -e
      mount --make-rprivate /
      mount --bind / ${root}
      for folder in proc run dev; do mount --rbind /$folder ${root}/$folder; done
      mount --bind ${dirname(host.sqlitePath)} ${data}
      echo "$CONF" | env $FIRST "$0"
      eval "$UNTIL_SOCKET"
      echo "$CONF" | env $SECOND chroot ${root} "$0"`;
    const conf = host.conf({ ...demand.conf, sqlite_path: join(data, "calico.db") });
    const [, second] = await twoCalls(host, demand, 'exec unshare -m sh -c "$SCRIPT" "$0"', {
      SCRIPT: script,
      CONF: JSON.stringify(conf),
    });
    expect(demand.served()).toEqual([]);
    expect(demand.log()).toMatch(/left to the plugin.* why="[^"]*sees other files/);
    expect(await other.handles()).toEqual([expect.stringContaining(second.containerId)]);
    expect(await host.handles()).toHaveLength(1);
  }, 60_000);

  test("takes nobody for a process of the same number elsewhere, where /proc shows other processes", async () => {
    await using host = await CniHost.create();
    await using other = await CniHost.create();
    using demand = new OnDemand(host);
    const double = host.startAmongUs("sleep", ["60"]);
    const script = `set -e
      echo "$CONF" | env $FIRST "$0"
      eval "$UNTIL_SOCKET"
      echo $(($DOUBLE - 1)) > /proc/sys/kernel/ns_last_pid
      sh -c 'test $$ = $DOUBLE && exec env $SECOND nsenter --net=/run/netns/${other.name} "$0"' "$0" < "$FILE"`;
    const conf = JSON.stringify(host.conf(demand.conf));
    const file = join(host.folder, "conf.json");
    writeFileSync(file, conf);
    await twoCalls(host, demand, 'exec unshare -pf sh -c "$SCRIPT" "$0"', {
      SCRIPT: script,
      CONF: conf,
      FILE: file,
      DOUBLE: String(double.pid),
    });
    expect(demand.served()).toEqual([]);
    expect([host.workloadLinks(), other.workloadLinks()].map((links) => links.length)).toEqual([1, 1]);
  }, 60_000);

  test("serves who has mounts of its own, but the same files", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host);
    const pid = await demand.started();
    const before = demand.served().length;
    const pod = host.pod();
    for (const command of ["ADD", "DEL"])
      expect(await demand.call(command, pod, { hasOwnMounts: true })).toMatchObject({ code: 0 });
    expect(demand.served()).toHaveLength(before + 2);
    expect(demand.running()).toEqual([pid]);
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("makes room for another network's once the calls of its own pause", async () => {
    await using host = await CniHost.create();
    await using other = await CniHost.create();
    using demand = new OnDemand(host);
    const pid = await demand.started();
    const elsewhere = { conf: { sqlite_path: other.sqlitePath } };
    const pods = [host.pod(), host.pod()] as const;
    // Every call of another network is done by the plugin; the one after the pause has a service follow it.
    const next = await eventually(async () => {
      expect(await demand.add(pods[0], elsewhere)).toMatchObject({ code: 0 });
      expect(await demand.del(pods[0], elsewhere)).toMatchObject({ code: 0 });
      return demand.running().find((running) => running !== pid) === undefined ? undefined : demand.listening();
    });
    expect(demand.running()).toEqual([next]);
    expect(demand.log()).toContain('why="makes room: the network is in another datastore"');
    const before = demand.served().length;
    expect(await demand.add(pods[1], elsewhere)).toMatchObject({ code: 0 });
    expect(await demand.del(pods[1], elsewhere)).toMatchObject({ code: 0 });
    expect(demand.served()).toHaveLength(before + 2);
    expect([...(await leftOf(host)), ...(await leftOf(other))]).toEqual([...NOTHING, ...NOTHING]);
  }, 60_000);

  test("serves a network that does not wish it while it is there, but does not stay for it", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host, 3);
    await demand.started();
    const pod = host.pod();
    const conf = { service_idle_seconds: 0 };
    let calls = 0;
    for (; demand.running().length > 0; calls++) {
      expect(await demand.call(calls % 2 === 0 ? "ADD" : "DEL", pod, { conf })).toMatchObject({ code: 0 });
      expect(calls).toBeLessThan(3000);
    }
    expect(demand.served().length).toBeGreaterThan(2);
    expect(demand.log()).toContain('why="nobody asks"');
    expect(await demand.del(pod, { conf })).toMatchObject({ code: 0 });
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("ends when its SQLite file is another one, into which it has written nothing", async () => {
    await using host = await CniHost.create();
    await using other = await CniHost.create();
    using demand = new OnDemand(host);
    const pid = await demand.started();
    const before = demand.served().length;
    await other.put("Node", "n1", {});
    await other.store.close();
    for (const end of ["-wal", "-shm", ""]) {
      if (existsSync(host.sqlitePath + end)) renameSync(host.sqlitePath + end, join(host.folder, `old${end}`));
      if (existsSync(other.sqlitePath + end)) renameSync(other.sqlitePath + end, host.sqlitePath + end);
    }
    const pod = host.pod();
    expect(await demand.add(pod)).toMatchObject({ code: 0 });
    expect(demand.served()).toHaveLength(before);
    const store = await openSqlite(host.sqlitePath);
    expect((await store.list({ type: "ipamHandle" })).items).toHaveLength(1);
    await eventually(() => !demand.running().includes(pid));
    expect(demand.log()).toContain("is another file");
    expect(await demand.del(pod)).toMatchObject({ code: 0 });
    expect((await store.list({ type: "ipamHandle" })).items).toHaveLength(0);
    await store.close();
    expect(await demand.started()).not.toBe(pid);
  }, 60_000);

  test("ends when its executable is replaced, and the next one is of the new", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host);
    mkdirSync(join(host.folder, "bin"));
    const file = join(host.folder, "bin/calico");
    linkSync(join(DIST, "calico"), file);
    const pid = await demand.started({ file });
    expect(readlinkSync(`/proc/${pid}/exe`)).toBe(file);
    copyFileSync(file, `${file}.new`);
    renameSync(`${file}.new`, file);
    const pod = host.pod();
    expect(await demand.add(pod, { file })).toMatchObject({ code: 0 });
    await eventually(() => !demand.running().includes(pid));
    expect(demand.log()).toContain('why="the executable was replaced"');
    expect(await demand.del(pod, { file })).toMatchObject({ code: 0 });
    const next = await demand.started({ file });
    expect(next).not.toBe(pid);
    expect(readlinkSync(`/proc/${next}/exe`)).toBe(file);
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 60_000);

  test("gives way to an agent's under load: no call is lost, and when that ends another one is started", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host);
    const pid = await demand.started();
    let isDone = false;
    let calls = 0;
    const load = Array.from({ length: 6 }, async () => {
      const pod = host.pod();
      while (!isDone)
        for (const command of ["ADD", "DEL"]) {
          expect(await demand.call(command, pod)).toMatchObject({ code: 0 });
          calls++;
        }
    });
    await eventually(() => calls > 20);
    const env = { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: host.sqlitePath };
    const agent = host.startAmongUs(join(DIST, "calico"), ["cni-service", "--socket", demand.socket], env);
    let log = "";
    agent.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
    await eventually(() => log.includes("listens"));
    await eventually(() => !demand.running().includes(pid), 5000);
    const served = demand.served().length;
    const until = calls + 40;
    await eventually(() => calls > until);
    isDone = true;
    await Promise.all(load);
    expect(demand.log()).toContain('why="another process answers at its socket"');
    expect(demand.served()).toHaveLength(served);
    expect(demand.running()).toEqual([]);
    expect(existsSync(`${demand.socket}.stand-in`)).toBeFalse();
    agent.kill("SIGTERM");
    await once(agent, "close");
    expect(await demand.started()).not.toBe(pid);
    expect(await leftOf(host)).toEqual(NOTHING);
  }, 120_000);

  test("that is killed in the middle leaves nothing that a DEL does not find, and the next call starts another", async () => {
    await using host = await CniHost.create();
    using demand = new OnDemand(host);
    for (let ms = 2; ms <= 18; ms += 4) {
      const pid = await demand.started();
      const pods = Array.from({ length: 4 }, () => host.pod());
      const adding = pods.map((pod) => demand.add(pod));
      await Bun.sleep(ms);
      process.kill(pid, "SIGKILL");
      const runs = await Promise.all(adding);
      // Until the kernel has closed the process's socket, it still accepts requests; they fail with code 11.
      const repeated = (call: () => Promise<PluginRun>) =>
        eventually(async () => {
          const run = await call();
          return run.code !== 0 && run.json["code"] === 11 ? undefined : run;
        });
      for (const [i, run] of runs.entries()) {
        if (run.code !== 0) {
          expect(run.json).toMatchObject({ code: 11 }); // its request had been sent
          continue;
        }
        const checked = await repeated(() => demand.call("CHECK", pods[i], { conf: { prevResult: run.json } }));
        expect(checked.stdout).toBe("OK\n"); // and there is what it said
      }
      for (const pod of pods) expect(await repeated(() => demand.del(pod))).toMatchObject({ code: 0, stdout: "" });
      expect(await leftOf(host)).toEqual(NOTHING);
    }
  }, 120_000);
});
