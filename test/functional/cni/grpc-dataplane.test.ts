// Tests ADD and DEL with a gRPC dataplane. The built plugin calls the test's gRPC server on a Unix socket.
import { createServer as createTcpServer } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import type { Resource } from "../../../src/model/index.ts";
import { canRun, CniHost, k8s, type Pod, type PluginRun } from "./cni-host.ts";
import { DataplaneServer, messageFields, mapOf, textOf } from "./dataplane-server.ts";
import { startService } from "./service.ts";

interface Served {
  readonly host: CniHost;
  readonly server: DataplaneServer;
  readonly conf: Record<string, unknown>;
}
async function withServer(run: (served: Served) => Promise<void>): Promise<void> {
  await using host = await CniHost.create();
  const socket = join(host.folder, "dataplane.sock");
  await using server = await DataplaneServer.listen(socket);
  const dataplane_options = { type: "grpc", socket: `unix://${socket}`, extra: "option", count: 3 };
  await run({ host, server, conf: { cniVersion: "1.1.0", mtu: 1400, dataplane_options } });
}
const specs = async (host: CniHost) => [...(await host.all("WorkloadEndpoint")).values()].map((e: Resource) => e.spec);
const held = async (host: CniHost) => [await host.allocations(), await host.handles(), await specs(host)];
const NOTHING = [[], [], []];
const methods = (server: DataplaneServer) => server.calls.map(({ method }) => method.replace("/cni.CniDataplane/", ""));

describe.skipIf(!canRun)("CI-041 the gRPC dataplane", () => {
  test("gets all properties of the interface, and its reply is stored and printed", () =>
    withServer(async ({ host, server, conf }) => {
      const pod = host.pod();
      server.replyTo = () => ({ hostName: "tun7", mac: "02-00-00-00-00-AB" });
      const more = { container_settings: { allow_ip_forwarding: true } };
      const args = {
        args: { "org.apache.mesos": { network_info: { labels: { labels: [{ key: "a", value: "b" }] } } } },
      };
      const added = await host.add(pod, { conf: { ...conf, ...more, ...args } });
      expect(added).toMatchObject({ code: 0 });
      const [spec] = await specs(host);
      expect(spec).toMatchObject({ interfaceName: "tun7", mac: "02:00:00:00:00:ab", orchestrator: "cni" });
      expect(added.json).toMatchObject({
        interfaces: [{ name: "tun7" }, { name: "eth0", mac: "02:00:00:00:00:ab", mtu: 1400, sandbox: pod.netns }],
      });
      expect(server.calls).toHaveLength(1);
      const { method, fields } = server.calls[0]!;
      expect(method).toBe("/cni.CniDataplane/Add");
      expect([1, 2, 3].map((n) => textOf(fields[n]))).toEqual([
        "eth0",
        pod.netns,
        `cali${pod.containerId.slice(0, 11)}`,
      ]);
      expect(messageFields(fields[4]?.[0])).toEqual({ 1: ["1"], 2: ["1400"] });
      const [address] = (added.json["ips"] as { address: string }[]).map((ip) => ip.address);
      expect(address).toEndWith("/26"); // with the prefix length of the block; the server decides which one the pod's address has
      expect(fields[5]?.map((ip) => textOf(messageFields(ip)[1]))).toEqual([address!]);
      expect(fields[6]).toEqual(["0.0.0.0/0", "::/0"]);
      const workload = messageFields(fields[7]?.[0]);
      expect([1, 2, 5, 6, 7].map((n) => textOf(workload[n]))).toEqual([
        `n1-cni-${pod.containerId}-eth0`,
        ...["default", "eth0", "n1", "cni"],
      ]);
      expect(mapOf(workload[3])).toEqual({ a: "b" });
      const { dataplane_options: options } = conf as { dataplane_options: { socket: string } };
      expect(mapOf(fields[8])).toEqual({ type: "grpc", socket: options.socket, extra: "option" });
      // The plugin has not created an interface itself.
      expect(host.workloadLinks()).toEqual([]);

      expect(await host.call("CHECK", pod, { conf: { ...conf, prevResult: added.json } })).toMatchObject({ code: 0 });
      expect(await host.call("STATUS", undefined, { conf })).toMatchObject({ code: 0 });
      expect(await host.del(pod, { conf })).toMatchObject({ code: 0, stdout: "" });
      expect(methods(server)).toEqual(["Add", "Del"]);
      const deleted = server.calls[1]!.fields;
      expect([1, 2].map((n) => textOf(deleted[n]))).toEqual(["eth0", pod.netns]);
      expect(mapOf(deleted[3])).toMatchObject({ extra: "option" });
      expect(await held(host)).toEqual(NOTHING);
    }));

  test("is called by the plugin itself for a pod, even if the CNI service listens", () =>
    withServer(async ({ host, server, conf }) => {
      const socket = join(host.folder, "run/cni.sock");
      await startService(host, socket).ready;
      const pod = host.pod();
      const options = { conf: { ...conf, service_socket: socket }, ...k8s("shop", "web-1") };
      const added = await host.add(pod, options);
      expect(added).toMatchObject({ code: 0 });
      const { fields } = server.calls[0]!;
      const workload = messageFields(fields[7]?.[0]);
      expect([1, 2, 7, 8].map((n) => textOf(workload[n]))).toEqual(["n1-k8s-web--1-eth0", "shop", "k8s", "web-1"]);
      const [host0] = added.json["interfaces"] as { name: string }[];
      expect(textOf(fields[3])).toBe(host0!.name);
      expect(await specs(host)).toMatchObject([{ interfaceName: host0!.name, mac: "02:00:00:00:00:41", pod: "web-1" }]);
      expect(await host.del(pod, options)).toMatchObject({ code: 0 });
      expect(await held(host)).toEqual(NOTHING);
    }));

  const failures: readonly [string, DataplaneServer["replyTo"], object, string[]][] = [
    [
      "returns an error",
      () => ({ error: "no room für it" }),
      { code: 999, msg: "grpc dataplane error: no room für it" },
      ["Add"],
    ],
    [
      "returns an internal status",
      () => ({ status: 13, message: "it broke" }),
      { code: 999, msg: expect.stringContaining("it broke") },
      ["Add"],
    ],
    [
      "is unavailable",
      () => ({ status: 14, message: "not yet" }),
      { code: 11, msg: expect.stringContaining("not yet") },
      ["Add"],
    ],
    ["does not reply", () => "no reply", { code: 11, msg: expect.stringContaining("no answer within 5 s") }, ["Add"]],
    // The interface is deleted again, because the endpoint cannot be stored.
    [
      "returns an invalid interface name",
      () => ({ hostName: "../eth0" }),
      { code: 999, msg: expect.stringContaining("an invalid interface name") },
      ["Add", "Del"],
    ],
    [
      "returns an invalid MAC address",
      () => ({ mac: "zz" }),
      { code: 999, msg: expect.stringContaining("an invalid MAC address") },
      ["Add", "Del"],
    ],
  ];
  for (const [what, replyTo, output, expectedMethods] of failures)
    test(
      `if it ${what}, no address and no endpoint remain`,
      () =>
        withServer(async ({ host, server, conf }) => {
          server.replyTo = replyTo;
          for (const args of [{}, k8s("shop", "web-1")]) {
            server.calls.length = 0;
            expect(await host.add(host.pod(), { conf, ...args })).toMatchObject({ code: 1, json: output });
            expect(await held(host)).toEqual(NOTHING);
            expect(methods(server)).toEqual(expectedMethods);
          }
        }),
      30_000,
    );

  test("if the endpoint cannot be stored, the interface is deleted", () =>
    withServer(async ({ host, server, conf }) => {
      const pod = host.pod();
      const name = `n1-cni-${pod.containerId}-eth0`;
      const taken = { node: "n1", orchestrator: "cni", containerID: "x", endpoint: "eth0", interfaceName: "calix" };
      server.replyTo = async ({ method }) => {
        // Another process creates the endpoint at this moment, so that the plugin's write is rejected.
        if (method.endsWith("Add"))
          await host.put("WorkloadEndpoint", name, { ...taken, ipNetworks: ["10.9.9.9/32"] }, "default");
        return {};
      };
      expect(await host.add(pod, { conf })).toMatchObject({ code: 1, json: { code: 999 } });
      expect(methods(server)).toEqual(["Add", "Del"]);
      expect(await host.allocations()).toEqual([]);
      expect(await specs(host)).toMatchObject([{ interfaceName: "calix" }]);
    }));

  test("if it rejects Del, the pod keeps its endpoint and address", () =>
    withServer(async ({ host, server, conf }) => {
      const pod = host.pod();
      expect(await host.add(pod, { conf })).toMatchObject({ code: 0 });
      const before = await held(host);
      server.replyTo = () => ({ error: "not now" });
      expect(await host.del(pod, { conf })).toMatchObject({
        code: 1,
        json: { code: 999, msg: "grpc dataplane error: not now" },
      });
      expect(await held(host)).toEqual(before);
      server.replyTo = () => ({});
      expect(await host.del(pod, { conf, env: { CNI_NETNS: "" } })).toMatchObject({ code: 0 });
      expect(textOf(server.calls.at(-1)!.fields[2])).toBe("");
      expect(await held(host)).toEqual(NOTHING);
    }));

  test("GC removes endpoint and addresses of a stale container, and no interfaces", () =>
    withServer(async ({ host, server, conf }) => {
      server.replyTo = () => ({ hostName: "uplink" }); // an interface of the host itself
      const pod = host.pod();
      expect(await host.add(pod, { conf })).toMatchObject({ code: 0 });
      const gc = await host.call("GC", undefined, { conf: { ...conf, "cni.dev/valid-attachments": [] } });
      expect(gc).toMatchObject({ code: 0 });
      expect(await held(host)).toEqual(NOTHING);
      expect(host.kernel.links.get("uplink")).toBeDefined();
    }));

  const runCommands = async (host: CniHost, pod: Pod, socket: unknown, conf = {}): Promise<PluginRun[]> => {
    const options = { conf: { cniVersion: "1.1.0", dataplane_options: { type: "grpc", socket }, ...conf } };
    return [await host.add(pod, options), await host.del(pod, options), await host.call("STATUS", undefined, options)];
  };
  test("if there is no gRPC server at the socket, the error names the socket", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "none.sock");
    for (const [where, text] of [
      [`unix://${socket}`, "ENOENT"],
      [socket, "ENOENT"],
      ["127.0.0.1:1", "ECONNREFUSED"],
    ] as const) {
      const [add, del, status] = await runCommands(host, host.pod(), where);
      const msg = expect.stringMatching(new RegExp(`the dataplane at .*${where}.*${text}`));
      expect(add).toMatchObject({ code: 1, json: { code: 11, msg } });
      expect(del).toMatchObject({ code: 1, json: { code: 11, msg } });
      expect(status).toMatchObject({ code: 1, json: { code: 50, msg } });
      expect(await held(host)).toEqual(NOTHING);
    }
    const other = createTcpServer((connection) => connection.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    await new Promise<void>((resolve) => other.listen(socket, resolve));
    const [add] = await runCommands(host, host.pod(), `unix:${socket}`);
    expect(add).toMatchObject({ code: 1, json: { code: 11 } });
    expect(await held(host)).toEqual(NOTHING);
    other.close();
  });

  test("an invalid dataplane is rejected before a pod gets an address", async () => {
    await using host = await CniHost.create();
    const cases: readonly [object | string, string][] = [
      [{ type: "vpp" }, "invalid dataplane type: vpp"],
      [{ type: "grpc" }, "GRPC dataplane socket not configured"],
      [{ type: "grpc", socket: 7 }, "GRPC dataplane socket not configured"],
      [{ type: "grpc", socket: "unix:here.sock" }, "an/absolute/path"],
      [{ type: "grpc", socket: `unix:///${"x".repeat(200)}` }, "at most 107 bytes"],
      [{ type: "grpc", socket: "there:99999" }, "host:port"],
      ["grpc", "dataplane_options: want an object"],
    ];
    for (const [dataplane_options, text] of cases) {
      const options = { conf: { dataplane_options }, ...k8s("shop", "web-1") };
      const pod = host.pod();
      for (const run of [await host.add(pod, options), await host.del(pod, options)])
        expect(run).toMatchObject({ code: 1, json: { code: 999, msg: expect.stringContaining(text) } });
      expect(await held(host)).toEqual(NOTHING);
    }
    // A container is rejected after its addresses were assigned. DEL reports the same error and releases them.
    const invalid = { conf: { dataplane_options: { type: "vpp" } } };
    const container = host.pod();
    for (const run of [await host.add(container, invalid), await host.del(container, invalid)])
      expect(run).toMatchObject({ code: 1, json: { code: 999, msg: "invalid dataplane type: vpp" } });
    expect(await held(host)).toEqual(NOTHING);
    // Options without a type have no effect.
    const pod = host.pod();
    expect(await host.add(pod, { conf: { dataplane_options: { colour: "red" } } })).toMatchObject({ code: 0 });
    expect(await host.del(pod, { conf: { dataplane_options: { colour: "red" } } })).toMatchObject({ code: 0 });
  });
});
