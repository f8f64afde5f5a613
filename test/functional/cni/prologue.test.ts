// The executable's prologue and the client in the runtime: two ways to the service, and back from it, with one result.
// By another name than `calico` the prologue leaves the call to the runtime; so each case runs once by either name.
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, symlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { FakeService, say } from "../../../scripts/prologue/fake-service.ts";
import { hasPrologue } from "../../../scripts/prologue/prologue.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CallOptions, canRun, CniHost, DIST, type PluginRun } from "./cni-host.ts";
import { startService } from "./service.ts";

/** What of the kernel's files a run opens: the runtime reads where its own memory lies, before all else. */
async function startsRuntime(env: Record<string, string>, input: string, ...argv: string[]): Promise<boolean> {
  const child = Bun.spawn(["strace", "-f", "-qq", "-e", "trace=openat", join(DIST, "calico"), ...argv], {
    env,
    stdin: Buffer.from(input),
    stdout: "ignore",
    stderr: "pipe",
  });
  const [trace] = await Promise.all([new Response(child.stderr).text(), child.exited]);
  expect(trace).toContain("/libc.so.6");
  return trace.includes("/proc/self/maps");
}

const canCompare = canRun && hasPrologue(join(DIST, "calico"));
if (canRun && !canCompare) console.log("the executable has no prologue: its tests are skipped");

describe.skipIf(!canCompare)("prologue", () => {
  const clients = (host: CniHost): [name: string, file: string][] => {
    const file = join(host.folder, "plugin");
    symlinkSync(join(DIST, "calico"), file);
    return [
      ["prologue", join(DIST, "calico")],
      ["runtime", file],
    ];
  };
  /** Without what differs from pod to pod. */
  const comparable = ({ code, stdout }: PluginRun): unknown => ({
    code,
    stdout: stdout
      .replaceAll(/10\.(65|70)\.0\.\d+|fd00:65::[0-9a-f:]+/g, "ADDRESS")
      .replaceAll(/"mac":"[^"]+"/g, '"mac":"MAC"')
      .replaceAll(/cnit-[0-9a-f]+-\d+/g, "NETNS"),
  });

  test("every command, and every kind of bad input, has the same answer", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock"); // where the service usually is
    await startService(host, socket).ready;
    // Only the service knows the datastore: nothing succeeds without it.
    const conf = { cniVersion: "1.1.0", service_socket: undefined, sqlite_path: undefined };
    const answers = new Map<string, Map<string, unknown>>();
    for (const [name, file] of clients(host)) {
      const got = new Map<string, unknown>();
      answers.set(name, got);
      const pod = host.pod("cid1");
      const run = async (
        what: string,
        command: string,
        options: CallOptions = {},
        on: typeof pod | undefined = pod,
      ) => {
        const result = await host.call(command, on, { file, ...options, conf: { ...conf, ...options.conf } });
        got.set(what, comparable(result));
        return result;
      };
      const added = await run("ADD", "ADD");
      expect(added.code).toBe(0);
      await run("ADD again", "ADD");
      await run("CHECK", "CHECK", { conf: { prevResult: added.json } });
      await run("CHECK of something else", "CHECK", {
        conf: { prevResult: { ...added.json, interfaces: [{ name: "x" }] } },
      });
      await run("STATUS", "STATUS", {}, undefined);
      await run("VERSION", "VERSION", {}, undefined);
      await run(
        "GC",
        "GC",
        { conf: { "cni.dev/valid-attachments": [{ containerID: "cid1", ifname: "eth0" }] } },
        undefined,
      );
      await run("DEL", "DEL");
      await run("DEL again", "DEL");
      await run("DEL without a namespace", "DEL", { env: { CNI_NETNS: "" } });
      for (const [what, stdin] of Object.entries(INPUTS)) await run(what, "ADD", { stdin });
      for (const [what, env] of Object.entries(ENVIRONMENTS)) {
        await run(what, "ADD", { env });
        await run(`DEL after it: ${what}`, "DEL", { env });
      }
      await run("a configuration of a megabyte", "ADD", { conf: { comment: 'größer 网络 "{\\n'.repeat(60_000) } });
      await run("DEL of it", "DEL");
      await run("another kind of device", "ADD", { conf: { device_type: "x" } });
      const ipam = { type: "host-local", subnet: "10.70.0.0/24", dataDir: `${host.folder}/hl` };
      await run("a program of the host gives the address", "ADD", { conf: { ipam, sqlite_path: host.sqlitePath } });
      await run("DEL of that", "DEL", { conf: { ipam, sqlite_path: host.sqlitePath } });
      await run("an unknown command", "FOO");
    }
    expect(Object.fromEntries(answers.get("prologue")!)).toEqual(Object.fromEntries(answers.get("runtime")!));
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
  }, 120_000);

  const INPUTS: Readonly<Record<string, string | Uint8Array>> = {
    "nothing on standard input": "",
    "no JSON": "garbage",
    "JSON cut short": '{"name":"net1","cniVersion":"1.0.0","type":',
    "a list": "[]",
    null: "null",
    "random bytes": Uint8Array.from({ length: 5000 }, (_, i) => (i * 7919) & 255),
    "a megabyte of nothing": " ".repeat(1 << 20),
    "an unknown version": '{"name":"net1","cniVersion":"9.9.9","type":"calico"}',
    "no name": '{"cniVersion":"1.0.0","type":"calico"}',
  };
  const ENVIRONMENTS: Readonly<Record<string, Record<string, string>>> = {
    "quotes, newlines and other alphabets in the arguments": {
      CNI_ARGS: 'IgnoreUnknown=1;X="a\\b";Y=a\nb\tc;Z=größer 网络',
    },
    "no container": { CNI_CONTAINERID: "" },
    "a strange container": { CNI_CONTAINERID: 'a"b' },
    "a long interface": { CNI_IFNAME: "x".repeat(16) },
    "a namespace that is not there": { CNI_NETNS: "/run/netns/none" },
    "a namespace that is none": { CNI_NETNS: "/etc/passwd" },
    "an environment of 100 KB": Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`X${i}`, "y".repeat(1000)])),
    "arguments of 100 KB": { CNI_ARGS: `IgnoreUnknown=1;X=${"y".repeat(100_000)}` },
    "a prefix of its own": { FELIX_INTERFACEPREFIX: "tap" },
  };

  test("without a service, or if it declines or is somebody else's, the plugin does the work; if it breaks, it reports code 11", async () => {
    await using host = await CniHost.create();
    await using fake = await FakeService.start();
    const foreign = join(host.folder, "foreign.sock");
    const nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "socat"];
    const listen = [`UNIX-LISTEN:${foreign},fork,mode=666`, "SYSTEM:cat >/dev/null; printf '0\\nforeign\\n'"];
    const chowned = spawnSync("chown", ["65534", host.folder]);
    expect(chowned.status).toBe(0);
    const other = host.start("setpriv", [...nobody, ...listen]);
    await eventually(() => existsSync(foreign));
    const done: [service: string, answer: ReturnType<typeof say>][] = [
      [join(host.folder, "none.sock"), say("")],
      [foreign, say("")],
      [fake.path, say('{"declined":"not here"}\n\n')],
    ];
    const broken = [say(""), say('0\n{"cniVersion"'), say("5\n\n"), (connection: Socket) => connection.destroy()];
    for (const [, file] of clients(host)) {
      for (const [path, answer] of done) {
        fake.answer = answer;
        const pod = host.pod();
        const added = await host.add(pod, { file, conf: { service_socket: path } });
        expect(added.json["ips"]).toHaveLength(1);
        expect(await host.del(pod, { file, conf: { service_socket: path } })).toMatchObject({ code: 0, stdout: "" });
      }
      for (const answer of broken) {
        fake.answer = answer;
        fake.requests.length = 0;
        const run = await host.add(host.pod(), { file, conf: { service_socket: fake.path } });
        expect(run).toMatchObject({ code: 1, json: { code: 11 } });
        expect(fake.requests).toHaveLength(1); // sent once
        expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
      }
    }
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
    other.kill();
    await once(other, "close");
  }, 60_000);

  test("a namespace that is there and cannot be opened is not taken for one that is gone with its wire", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    await startService(host, socket).ready;
    const loop = join(host.folder, "loop");
    symlinkSync(loop, loop);
    for (const [name, file] of clients(host))
      for (const service_socket of [socket, ""]) {
        const pod = host.pod();
        const options = { file, conf: { service_socket } };
        const none = await host.add(pod, { ...options, env: { CNI_NETNS: "/etc/passwd" } });
        expect(none.json["msg"]).toBe("enter network namespace /etc/passwd: EINVAL");
        expect(await host.add(pod, options)).toMatchObject({ code: 0 });
        const failed = await host.del(pod, { ...options, env: { CNI_NETNS: loop } });
        expect([name, service_socket, failed.stdout]).toEqual([name, service_socket, expect.stringContaining("ELOOP")]);
        expect(host.workloadLinks()).toHaveLength(1);
        expect(await host.del(pod, options)).toMatchObject({ code: 0 });
      }
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
  }, 60_000);

  test("a call that the service answers starts no runtime, every other one does", async () => {
    await using fake = await FakeService.start();
    fake.answer = say("0\nfine\n");
    const input = JSON.stringify({ service_socket: fake.path });
    const env = {
      PATH: process.env["PATH"] ?? "",
      CNI_COMMAND: "DEL",
      CNI_CONTAINERID: "c",
      CNI_IFNAME: "eth0",
      CNI_PATH: "/x",
    };
    expect(await startsRuntime(env, input)).toBeFalse();
    expect(fake.requests).toHaveLength(1);
    expect(await startsRuntime({ ...env, CNI_COMMAND: "VERSION" }, input)).toBeTrue();
    expect(await startsRuntime(env, input, "version")).toBeTrue();
    expect(await startsRuntime({ PATH: env.PATH }, input)).toBeTrue();
    expect(fake.requests).toHaveLength(1);
  });

  test("other roles start as ever, whatever the environment and the name", () => {
    const large = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`V${i}`, "=".repeat(i * 10)]));
    const environments = [
      {},
      { PATH: "/bin" },
      large,
      { CNI_COMMAND: "ADD" },
      { CNI_COMMAND: "" },
      { CNI_COMMAND: "ADD", ...large },
    ];
    for (const env of environments)
      for (const name of ["calico", "calicoctl", "calico-node", "calico-typha", "calico-felix"]) {
        const word = { calico: "version", calicoctl: "version" }[name] ?? "--help";
        const run = spawnSync(join(DIST, name), [word], { env, encoding: "utf8", timeout: 20_000 });
        expect([name, run.signal, /v\d+\.\d+|[Uu]sage|--/.test(run.stdout + run.stderr)]).toEqual([name, null, true]);
      }
  }, 60_000);
});
