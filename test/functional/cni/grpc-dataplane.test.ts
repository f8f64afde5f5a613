// Wires that a gRPC server makes. The server here is the test's own; the real plugin asks it on a Unix socket.
import { createServer as createTcpServer } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import type { Resource } from "../../../src/model/index.ts";
import { canRun, CniHost, k8s, type Pod, type PluginRun } from "./cni-host.ts";
import { DataplaneServer, inside, mapOf, textOf } from "./dataplane-server.ts";
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
const methods = (server: DataplaneServer) => server.asked.map(({ method }) => method.replace("/cni.CniDataplane/", ""));

describe.skipIf(!canRun)("CI-041 the gRPC dataplane", () => {
  test("is told all of the wire, and its answer is stored and printed", () =>
    withServer(async ({ host, server, conf }) => {
      const pod = host.pod();
      server.answer = () => ({ hostName: "tun7", mac: "02-00-00-00-00-AB" });
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
      expect(server.asked).toHaveLength(1);
      const { method, fields } = server.asked[0]!;
      expect(method).toBe("/cni.CniDataplane/Add");
      expect([1, 2, 3].map((n) => textOf(fields[n]))).toEqual([
        "eth0",
        pod.netns,
        `cali${pod.containerId.slice(0, 11)}`,
      ]);
      expect(inside(fields[4]?.[0])).toEqual({ 1: ["1"], 2: ["1400"] });
      const [address] = (added.json["ips"] as { address: string }[]).map((ip) => ip.address);
      expect(address).toEndWith("/26"); // as its assigner gave it: what the pod has of it is the server's business
      expect(fields[5]?.map((ip) => textOf(inside(ip)[1]))).toEqual([address!]);
      expect(fields[6]).toEqual(["0.0.0.0/0", "::/0"]);
      const workload = inside(fields[7]?.[0]);
      expect([1, 2, 5, 6, 7].map((n) => textOf(workload[n]))).toEqual([
        `n1-cni-${pod.containerId}-eth0`,
        ...["default", "eth0", "n1", "cni"],
      ]);
      expect(mapOf(workload[3])).toEqual({ a: "b" });
      const { dataplane_options: options } = conf as { dataplane_options: { socket: string } };
      expect(mapOf(fields[8])).toEqual({ type: "grpc", socket: options.socket, extra: "option" });
      // Neither end of it is ours.
      expect(host.workloadLinks()).toEqual([]);

      expect(await host.call("CHECK", pod, { conf: { ...conf, prevResult: added.json } })).toMatchObject({ code: 0 });
      expect(await host.call("STATUS", undefined, { conf })).toMatchObject({ code: 0 });
      expect(await host.del(pod, { conf })).toMatchObject({ code: 0, stdout: "" });
      expect(methods(server)).toEqual(["Add", "Del"]);
      const deleted = server.asked[1]!.fields;
      expect([1, 2].map((n) => textOf(deleted[n]))).toEqual(["eth0", pod.netns]);
      expect(mapOf(deleted[3])).toMatchObject({ extra: "option" });
      expect(await held(host)).toEqual(NOTHING);
    }));

  test("a pod's wire too, asked by the plugin itself though the service listens", () =>
    withServer(async ({ host, server, conf }) => {
      const socket = join(host.folder, "run/cni.sock");
      await startService(host, socket).ready;
      const pod = host.pod();
      const asked = { conf: { ...conf, service_socket: socket }, ...k8s("shop", "web-1") };
      const added = await host.add(pod, asked);
      expect(added).toMatchObject({ code: 0 });
      const { fields } = server.asked[0]!;
      const workload = inside(fields[7]?.[0]);
      expect([1, 2, 7, 8].map((n) => textOf(workload[n]))).toEqual(["n1-k8s-web--1-eth0", "shop", "k8s", "web-1"]);
      const [host0] = added.json["interfaces"] as { name: string }[];
      expect(textOf(fields[3])).toBe(host0!.name);
      expect(await specs(host)).toMatchObject([{ interfaceName: host0!.name, mac: "02:00:00:00:00:41", pod: "web-1" }]);
      expect(await host.del(pod, asked)).toMatchObject({ code: 0 });
      expect(await held(host)).toEqual(NOTHING);
    }));

  const failures: readonly [string, DataplaneServer["answer"], object, string[]][] = [
    [
      "refuses",
      () => ({ refusal: "no room für it" }),
      { code: 999, msg: "grpc dataplane error: no room für it" },
      ["Add"],
    ],
    [
      "breaks",
      () => ({ status: 13, message: "it broke" }),
      { code: 999, msg: expect.stringContaining("it broke") },
      ["Add"],
    ],
    [
      "is starting",
      () => ({ status: 14, message: "not yet" }),
      { code: 11, msg: expect.stringContaining("not yet") },
      ["Add"],
    ],
    ["is silent", () => "nothing", { code: 11, msg: expect.stringContaining("no answer within 5 s") }, ["Add"]],
    // What was made is unmade: nobody could store it.
    [
      "names no interface",
      () => ({ hostName: "../eth0" }),
      { code: 999, msg: expect.stringContaining("an invalid interface name") },
      ["Add", "Del"],
    ],
    [
      "names no MAC",
      () => ({ mac: "zz" }),
      { code: 999, msg: expect.stringContaining("an invalid MAC address") },
      ["Add", "Del"],
    ],
  ];
  for (const [what, answer, reply, asked] of failures)
    test(
      `one that ${what} leaves no address and no endpoint`,
      () =>
        withServer(async ({ host, server, conf }) => {
          server.answer = answer;
          for (const who of [{}, k8s("shop", "web-1")]) {
            server.asked.length = 0;
            expect(await host.add(host.pod(), { conf, ...who })).toMatchObject({ code: 1, json: reply });
            expect(await held(host)).toEqual(NOTHING);
            expect(methods(server)).toEqual(asked);
          }
        }),
      30_000,
    );

  test("an endpoint that cannot be stored takes its wire with it", () =>
    withServer(async ({ host, server, conf }) => {
      const pod = host.pod();
      const name = `n1-cni-${pod.containerId}-eth0`;
      const taken = { node: "n1", orchestrator: "cni", containerID: "x", endpoint: "eth0", interfaceName: "calix" };
      server.answer = async ({ method }) => {
        // Another writes it meanwhile: ours is refused.
        if (method.endsWith("Add"))
          await host.put("WorkloadEndpoint", name, { ...taken, ipNetworks: ["10.9.9.9/32"] }, "default");
        return {};
      };
      expect(await host.add(pod, { conf })).toMatchObject({ code: 1, json: { code: 999 } });
      expect(methods(server)).toEqual(["Add", "Del"]);
      expect(await host.allocations()).toEqual([]);
      expect(await specs(host)).toMatchObject([{ interfaceName: "calix" }]);
    }));

  test("a wire it does not give up keeps its address", () =>
    withServer(async ({ host, server, conf }) => {
      const pod = host.pod();
      expect(await host.add(pod, { conf })).toMatchObject({ code: 0 });
      const before = await held(host);
      server.answer = () => ({ refusal: "not now" });
      expect(await host.del(pod, { conf })).toMatchObject({
        code: 1,
        json: { code: 999, msg: "grpc dataplane error: not now" },
      });
      expect(await held(host)).toEqual(before);
      server.answer = () => ({});
      expect(await host.del(pod, { conf, env: { CNI_NETNS: "" } })).toMatchObject({ code: 0 });
      expect(textOf(server.asked.at(-1)!.fields[2])).toBe("");
      expect(await held(host)).toEqual(NOTHING);
    }));

  test("GC frees what a lost container held and leaves interfaces alone", () =>
    withServer(async ({ host, server, conf }) => {
      server.answer = () => ({ hostName: "uplink" }); // an interface of the host's own
      const pod = host.pod();
      expect(await host.add(pod, { conf })).toMatchObject({ code: 0 });
      const gc = await host.call("GC", undefined, { conf: { ...conf, "cni.dev/valid-attachments": [] } });
      expect(gc).toMatchObject({ code: 0 });
      expect(await held(host)).toEqual(NOTHING);
      expect(host.kernel.links.get("uplink")).toBeDefined();
    }));

  const told = async (host: CniHost, pod: Pod, socket: unknown, conf = {}): Promise<PluginRun[]> => {
    const options = { conf: { cniVersion: "1.1.0", dataplane_options: { type: "grpc", socket }, ...conf } };
    return [await host.add(pod, options), await host.del(pod, options), await host.call("STATUS", undefined, options)];
  };
  test("a server that is not there, or is none, is told with its socket", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "none.sock");
    for (const [where, text] of [
      [`unix://${socket}`, "ENOENT"],
      [socket, "ENOENT"],
      ["127.0.0.1:1", "ECONNREFUSED"],
    ] as const) {
      const [add, del, status] = await told(host, host.pod(), where);
      const msg = expect.stringMatching(new RegExp(`the dataplane at .*${where}.*${text}`));
      expect(add).toMatchObject({ code: 1, json: { code: 11, msg } });
      expect(del).toMatchObject({ code: 1, json: { code: 11, msg } });
      expect(status).toMatchObject({ code: 1, json: { code: 50, msg } });
      expect(await held(host)).toEqual(NOTHING);
    }
    const other = createTcpServer((connection) => connection.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    await new Promise<void>((resolve) => other.listen(socket, resolve));
    const [add] = await told(host, host.pod(), `unix:${socket}`);
    expect(add).toMatchObject({ code: 1, json: { code: 11 } });
    expect(await held(host)).toEqual(NOTHING);
    other.close();
  });

  test("one that cannot be is refused before a pod is given anything", async () => {
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
      const asked = { conf: { dataplane_options }, ...k8s("shop", "web-1") };
      const pod = host.pod();
      for (const run of [await host.add(pod, asked), await host.del(pod, asked)])
        expect(run).toMatchObject({ code: 1, json: { code: 999, msg: expect.stringContaining(text) } });
      expect(await held(host)).toEqual(NOTHING);
    }
    // A container is refused when it has its addresses; its DEL says the same, and gives them back.
    const refused = { conf: { dataplane_options: { type: "vpp" } } };
    const container = host.pod();
    for (const run of [await host.add(container, refused), await host.del(container, refused)])
      expect(run).toMatchObject({ code: 1, json: { code: 999, msg: "invalid dataplane type: vpp" } });
    expect(await held(host)).toEqual(NOTHING);
    // Options without a type change nothing.
    const pod = host.pod();
    expect(await host.add(pod, { conf: { dataplane_options: { colour: "red" } } })).toMatchObject({ code: 0 });
    expect(await host.del(pod, { conf: { dataplane_options: { colour: "red" } } })).toMatchObject({ code: 0 });
  });
});
