// Compares the plugin's results with and without a CNI service: they must be equal.
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, symlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { FakeService, replyWith } from "../../../src/cni/testing/fake-service.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CallOptions, canRun, CniHost, DIST, type PluginRun } from "./cni-host.ts";
import { startService } from "./service.ts";

describe.skipIf(!canRun)("service client", () => {
  /** Removes what differs between pods. */
  const comparable = ({ code, stdout }: PluginRun): unknown => ({
    code,
    stdout: stdout
      .replaceAll(/10\.(65|70)\.0\.\d+|fd00:65::[0-9a-f:]+/g, "ADDRESS")
      .replaceAll(/"mac":"[^"]+"/g, '"mac":"MAC"')
      .replaceAll(/cnit-[0-9a-f]+-\d+/g, "NETNS"),
  });

  test("every command, and every kind of invalid input, has the same result", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock"); // where the service usually is
    await startService(host, socket).ready;
    const ways: [name: string, conf: Record<string, unknown>][] = [
      // Without the path of the datastore, only the service can succeed.
      ["service", { cniVersion: "1.1.0", service_socket: undefined, sqlite_path: undefined }],
      ["plugin alone", { cniVersion: "1.1.0" }],
    ];
    const results = new Map<string, Map<string, unknown>>();
    for (const [name, conf] of ways) {
      const got = new Map<string, unknown>();
      results.set(name, got);
      const pod = host.pod("cid1");
      const run = async (
        what: string,
        command: string,
        options: CallOptions = {},
        on: typeof pod | undefined = pod,
      ) => {
        const result = await host.call(command, on, { ...options, conf: { ...conf, ...options.conf } });
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
      await run("a program of the host assigns the address", "ADD", { conf: { ipam, sqlite_path: host.sqlitePath } });
      await run("DEL of that", "DEL", { conf: { ipam, sqlite_path: host.sqlitePath } });
      await run("an unknown command", "FOO");
    }
    expect(Object.fromEntries(results.get("service")!)).toEqual(Object.fromEntries(results.get("plugin alone")!));
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
  }, 120_000);

  const INPUTS: Readonly<Record<string, string | Uint8Array>> = {
    "empty standard input": "",
    "invalid JSON": "garbage",
    "incomplete JSON": '{"name":"net1","cniVersion":"1.0.0","type":',
    "a list": "[]",
    null: "null",
    "random bytes": Uint8Array.from({ length: 5000 }, (_, i) => (i * 7919) & 255),
    "a megabyte of spaces": " ".repeat(1 << 20),
    "an unknown version": '{"name":"net1","cniVersion":"9.9.9","type":"calico"}',
    "no name": '{"cniVersion":"1.0.0","type":"calico"}',
  };
  const ENVIRONMENTS: Readonly<Record<string, Record<string, string>>> = {
    "quotes, newlines and other alphabets in the arguments": {
      CNI_ARGS: 'IgnoreUnknown=1;X="a\\b";Y=a\nb\tc;Z=größer 网络',
    },
    "no container": { CNI_CONTAINERID: "" },
    "an invalid container ID": { CNI_CONTAINERID: 'a"b' },
    "a long interface": { CNI_IFNAME: "x".repeat(16) },
    "a namespace that does not exist": { CNI_NETNS: "/run/netns/none" },
    "a file that is not a namespace": { CNI_NETNS: "/etc/passwd" },
    "an environment of 100 KB": Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`X${i}`, "y".repeat(1000)])),
    "arguments of 100 KB": { CNI_ARGS: `IgnoreUnknown=1;X=${"y".repeat(100_000)}` },
    "another interface prefix": { FELIX_INTERFACEPREFIX: "tap" },
  };

  test("without a service, or if it declines or has another user, the plugin does the work; if it breaks, it reports code 11", async () => {
    await using host = await CniHost.create();
    await using fake = await FakeService.start();
    const foreign = join(host.folder, "foreign.sock");
    const nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "socat"];
    const listen = [`UNIX-LISTEN:${foreign},fork,mode=666`, "SYSTEM:cat >/dev/null; printf '0\\nforeign\\n'"];
    const chowned = spawnSync("chown", ["65534", host.folder]);
    expect(chowned.status).toBe(0);
    const other = host.start("setpriv", [...nobody, ...listen]);
    await eventually(() => existsSync(foreign));
    const done: [service: string, answer: ReturnType<typeof replyWith>][] = [
      [join(host.folder, "none.sock"), replyWith("")],
      [foreign, replyWith("")],
      [fake.path, replyWith('{"declined":"not here"}\n\n')],
    ];
    const broken = [
      replyWith(""),
      replyWith('0\n{"cniVersion"'),
      replyWith("5\n\n"),
      (connection: Socket) => connection.destroy(),
    ];
    for (const [path, answer] of done) {
      fake.answer = answer;
      const pod = host.pod();
      const added = await host.add(pod, { conf: { service_socket: path } });
      expect(added.json["ips"]).toHaveLength(1);
      expect(await host.del(pod, { conf: { service_socket: path } })).toMatchObject({ code: 0, stdout: "" });
    }
    for (const answer of broken) {
      fake.answer = answer;
      fake.requests.length = 0;
      const run = await host.add(host.pod(), { conf: { service_socket: fake.path } });
      expect(run).toMatchObject({ code: 1, json: { code: 11 } });
      expect(fake.requests).toHaveLength(1); // sent once
      expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
    }
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
    other.kill();
    await once(other, "close");
  }, 60_000);

  test("a namespace that exists but cannot be opened is not treated as deleted", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    await startService(host, socket).ready;
    const loop = join(host.folder, "loop");
    symlinkSync(loop, loop);
    for (const service_socket of [socket, ""]) {
      const pod = host.pod();
      const options = { conf: { service_socket } };
      const none = await host.add(pod, { ...options, env: { CNI_NETNS: "/etc/passwd" } });
      expect(none.json["msg"]).toBe("enter network namespace /etc/passwd: EINVAL");
      expect(await host.add(pod, options)).toMatchObject({ code: 0 });
      const failed = await host.del(pod, { ...options, env: { CNI_NETNS: loop } });
      expect([service_socket, failed.stdout]).toEqual([service_socket, expect.stringContaining("ELOOP")]);
      expect(host.workloadLinks()).toHaveLength(1);
      expect(await host.del(pod, options)).toMatchObject({ code: 0 });
    }
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
  }, 60_000);

  test("other programs start normally, with any environment", () => {
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
