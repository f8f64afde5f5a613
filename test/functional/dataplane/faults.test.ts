// Tests faults of the host and the kernel. After each of them the kernel has exactly the desired state, no packet passed that
// policy denies, and the log reports the fault.
import { describe, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { NetlinkError, procSysctls } from "../../../src/kernel/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";

import { eventually } from "../../../src/lib/testing/eventually.ts";
import {
  allowProfile,
  BACKENDS,
  type Backend,
  DataplaneHost,
  inSync,
  type Pod,
  policy,
  rule,
  tier,
  vxlanRoute,
} from "./host.ts";
import { watchWrites } from "./watch-writes.ts";

const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });

/** Policy of b: allow only tcp 80 from a. */
const stateA = (host: DataplaneHost, a: Pod, b: Pod): DataplaneMessage[] => [
  allowProfile,
  { type: "ipSetUpdate", id: "s:one", setType: "net", members: [`${a.v4}/32`, `${a.v6}/128`] },
  policy("p", [rule({ protocol: tcp, srcIpSetIds: ["s:one"], dstPorts: [port(80)] })]),
  host.endpoint(a),
  host.endpoint(b, { tiers: [tier(["p"])] }),
  inSync,
];

/** Policy of b: allow tcp 81 from c, a third pod. */
const stateB = (host: DataplaneHost, a: Pod, b: Pod, c: Pod): DataplaneMessage[] => [
  allowProfile,
  { type: "ipSetUpdate", id: "s:two", setType: "net", members: [`${c.v4}/32`, `${c.v6}/128`] },
  policy("p", [rule({ protocol: tcp, srcIpSetIds: ["s:two"], dstPorts: [port(81)] })]),
  host.endpoint(a),
  host.endpoint(b, { tiers: [tier(["p"])] }),
  host.endpoint(c),
  inSync,
];

async function threePods(backend: Backend, settings: Readonly<Record<string, string>> = {}) {
  const host = await DataplaneHost.create(backend, settings);
  const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
  for (const p of [80, 81, 82]) host.prober.listen(b.target, "tcp", p);
  return { host, a, b, c };
}

/** Returns the kernel state that calico-ts has programmed, for comparison. */
function held(host: DataplaneHost): string {
  const run = (command: string, ...args: string[]) => host.namespace.run(command, args);
  const rules =
    host.backend === "nftables"
      ? ["ip", "ip6"].flatMap((family) =>
          run("nft", "-s", "list", "table", family, "calico")
            .split(/\n(?=\t\w)/)
            .sort(),
        )
      : [
          ...["iptables", "ip6tables"].flatMap((tool) => run(`${tool}-${host.backend}-save`).split("\n").sort()),
          ...run("ipset", "save").split("\n").sort(),
        ];
  return [...rules, ...run("ip", "route").split("\n").sort(), ...run("ip", "-6", "route").split("\n").sort()]
    .flatMap((block) => block.split("\n"))
    .filter((line) => !line.startsWith("#") && line !== "}")
    .map((line) => line.replace(/\[\d+:\d+\]|(hashsize|bucketsize|initval|expires) \S+|linkdown/g, "").trim())
    .join("\n");
}

for (const backend of BACKENDS)
  describe(backend, () => {
    test("a deleted route and a changed route are restored", async () => {
      const { host, a, b } = await threePods(backend, { RouteRefreshInterval: "0.2" });
      await using _ = host;
      host.start();
      await host.send(...stateA(host, a, b));
      const before = held(host);
      host.namespace.run("ip", ["route", "del", `${b.v4}/32`]);
      await eventually(() => held(host) === before, 10_000);
      expect(host.lines.join("\n")).toContain("another program deleted a route; restoring it");
      host.namespace.run("ip", ["route", "replace", `${b.v4}/32`, "dev", a.interfaceName, "metric", "1024"]);
      await eventually(() => held(host) === before, 10_000);
      expect(host.lines.join("\n")).toContain("another program changed routes; restoring them");
      expect(await host.probe([80, 81].map((p) => ({ from: a.target, to: b.v4, port: p })))).toEqual([
        "reached",
        "silent",
      ]);
    }, 60_000);

    test("after interfaces flap or are renamed and back, the state is restored, and denied traffic is never allowed", async () => {
      const { host, a, b, c } = await threePods(backend);
      await using _ = host;
      host.start();
      await host.send(...stateA(host, a, b));
      const before = held(host);
      const ip = (...args: string[]) => host.namespace.run("ip", ["link", "set", ...args]);
      for (let i = 0; i < 5; i++) {
        ip(b.interfaceName, "down");
        ip(b.interfaceName, "up");
      }
      await eventually(() => held(host) === before, 10_000).catch(() => expect(held(host)).toBe(before));
      ip(b.interfaceName, "down", "name", "elsewhere");
      ip("elsewhere", "up");
      await eventually(() => host.reports.at(-1)?.type === "workloadEndpointStatus", 5000);
      expect(
        await host.probe([
          { from: a.target, to: b.v4, port: 81 },
          { from: c.target, to: b.v4, port: 80 },
        ]),
      ).toEqual(["silent", "silent"]);
      ip("elsewhere", "down", "name", b.interfaceName);
      ip(b.interfaceName, "up");
      await eventually(() => held(host) === before, 10_000);
      expect(await host.probe([80, 81].map((p) => ({ from: a.target, to: b.v4, port: p })))).toEqual([
        "reached",
        "silent",
      ]);
      expect(host.reports.filter((r) => r.type === "workloadEndpointStatus").map((r) => r.status)).toContain("down");
    }, 60_000);

    test("failed writes are retried, and the old rules stay in force until the new ones are programmed", async () => {
      const { host, a, b, c } = await threePods(backend);
      await using _ = host;
      let failures = 0;
      let isFailing = false;
      host.wrapKernel = (kernel) =>
        watchWrites(kernel, (what) => {
          if (!isFailing || !/commit|restore/.test(what) || failures === 0) return;
          failures--;
          throw new Error("the kernel is out of memory");
        });
      host.start();
      await host.send(...stateA(host, a, b));
      isFailing = true;
      failures = 6;
      const sent = host.send(...stateB(host, a, b, c));
      const denied = [
        { from: a.target, to: b.v4, port: 82 },
        { from: a.target, to: b.v4, port: 81 },
        { from: c.target, to: b.v4, port: 80 },
      ];
      expect(await host.probe(denied, 100)).toEqual(["silent", "silent", "silent"]);
      await sent;
      await eventually(
        async () => (await host.probe([{ from: c.target, to: b.v4, port: 81 }]))[0] === "reached",
        10_000,
      );
      expect(failures).toBe(0);
      expect(host.lines.join("\n")).toMatch(/retrying.*out of memory/);
      expect(await host.probe(denied, 100)).toEqual(["silent", "silent", "silent"]);
    }, 60_000);

    test("if all retries fail, the dataplane stops with the old rules in force", async () => {
      const { host, a, b, c } = await threePods(backend);
      let isFailing = false;
      host.wrapKernel = (kernel) =>
        watchWrites(kernel, (what) => {
          if (isFailing && /commit|restore/.test(what)) throw new Error("the kernel is out of memory");
        });
      host.start();
      await host.send(...stateA(host, a, b));
      isFailing = true;
      await expect(host.send(...stateB(host, a, b, c))).rejects.toThrow("cannot be programmed");
      expect(
        await host.probe([
          { from: a.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v4, port: 81 },
        ]),
      ).toEqual(["reached", "silent"]);
      await host[Symbol.asyncDispose]().catch(() => {}); // it has ended with this error
    }, 60_000);
  });

for (const backend of BACKENDS)
  test(`${backend}: killed between any two writes, the next start completes the state, and nothing is allowed meanwhile`, async () => {
    const { host, a, b, c } = await threePods(backend);
    await using _ = host;
    const run = async (messages: readonly DataplaneMessage[], killAt: number): Promise<boolean> => {
      let writes = 0;
      let settings = 0;
      const state = { isKilled: false };
      host.wrapKernel = (kernel: LinuxKernel) =>
        watchWrites(kernel, (what) => {
          // There are many similar writes of interface settings; one of them is sufficient.
          if (!state.isKilled && what.startsWith("sysctls") && ++settings !== 1) return;
          if (state.isKilled || ++writes === killAt) {
            state.isKilled = true;
            throw new Error("killed"); // no further writes
          }
        });
      host.start();
      const done = host.send(...messages).catch(() => {});
      await Promise.race([done, eventually(() => state.isKilled, 20_000)]);
      await host.stop().catch(() => {});
      return state.isKilled;
    };
    const never = Number.POSITIVE_INFINITY;
    await run(stateB(host, a, b, c), never);
    const desired = held(host);
    const deniedInBoth = [
      { from: a.target, to: b.v4, port: 82 },
      { from: a.target, to: b.v6, port: 82 },
      { from: a.target, to: b.v4, port: 81 },
      { from: c.target, to: b.v4, port: 80 },
      { from: c.target, to: b.v6, port: 80 },
    ];
    let points = 0;
    for (let killAt = 1; ; killAt++) {
      await run(stateA(host, a, b), never);
      // Correct state is not written, so something of each kind is changed first.
      host.inside(() => procSysctls.write(["net", "ipv4", "conf", c.interfaceName, "proxy_arp"], 0));
      for (const address of [c.v4, c.v6]) host.namespace.run("ip", ["route", "flush", address]);
      if (!(await run(stateB(host, a, b, c), killAt))) break;
      points++;
      expect(await host.probe(deniedInBoth, 50)).toEqual(deniedInBoth.map(() => "silent"));
      await run(stateB(host, a, b, c), never);
      expect(held(host)).toBe(desired);
    }
    expect(points).toBeGreaterThan(backend === "nftables" ? 2 : 6);
    // A pod whose gateway did not answer (proxy_arp was off) retries after a second.
    await eventually(async () => (await host.probe([{ from: c.target, to: b.v4, port: 81 }]))[0] === "reached");
  }, 240_000);

test("legacy: the dataplane waits while another program holds the xtables lock", async () => {
  const { host, a, b } = await threePods("legacy");
  await using _ = host;
  host.start();
  await host.send(...stateA(host, a, b));
  const holder = spawn("flock", ["/run/xtables.lock", "sleep", "1.5"], { stdio: "ignore" });
  await new Promise((resolve) => setTimeout(resolve, 200));
  const started = performance.now();
  await host.send(policy("p", [rule({ protocol: tcp, dstPorts: [port(82)] })]));
  expect(performance.now() - started).toBeGreaterThan(800);
  expect(await host.probe([80, 82].map((p) => ({ from: a.target, to: b.v4, port: p })))).toEqual(["silent", "reached"]);
  holder.kill();
}, 60_000);

/** A kernel that rejects a kind of device until it is enabled. */
const withoutDevices = (kernel: LinuxKernel, kind: string, isMissing: () => boolean): LinuxKernel => ({
  ...kernel,
  routes: {
    ...kernel.routes,
    links: new Proxy(kernel.routes.links, {
      get: (of, name) => {
        const value: unknown = Reflect.get(of, name);
        if (typeof value !== "function") return value;
        return (...args: readonly unknown[]) => {
          const [link] = args as readonly [{ readonly type?: { readonly kind: string } } | undefined];
          // The error of such a kernel.
          if (name === "create" && link?.type?.kind === kind && isMissing())
            throw new NetlinkError("add a link", "EOPNOTSUPP");
          return Reflect.apply(value, of, args);
        };
      },
    }),
  },
});

test("a kernel without IPIP: the setting that requires it is logged once, and everything else works", async () => {
  const { host, a, b } = await threePods("nftables");
  await using _ = host;
  host.wrapKernel = (kernel) => withoutDevices(kernel, "ipip", () => true);
  host.start({ IpInIpTunnelAddr: "10.65.0.1" }, "nftables", { ipipEnabled: true });
  await host.send(...stateA(host, a, b));
  await host.send(inSync); // causes a retry
  expect(await host.probe([80, 81].map((p) => ({ from: a.target, to: b.v4, port: p })))).toEqual(["reached", "silent"]);
  const said = host.lines.filter((line) => line.includes("kernel does not support the tunnel"));
  expect(said).toHaveLength(1);
  expect(said[0]).toContain("ipipMode of an IPPool");
}, 60_000);

test("a kernel without VXLAN: the setting is logged once, everything else works, and the module is used as soon as it is loaded", async () => {
  const { host, a, b } = await threePods("nftables");
  await using _ = host;
  let isMissing = true;
  host.wrapKernel = (kernel) => withoutDevices(kernel, "vxlan", () => isMissing);
  host.start({ IPv4VXLANTunnelAddr: "10.65.1.0" }, "nftables", { vxlanEnabled: true });
  const vtep = { type: "vtepUpdate", macV6: "", ipv6Addr: "", parentDeviceIpv6: "" } as const;
  const [own, other] = ["10.65.1.0", "10.65.2.0"] as IpAddress[];
  await host.send(
    { ...vtep, node: "node-a", mac: "66:00:00:00:00:0a", ipv4Addr: own!, parentDeviceIp: "192.0.2.10" as IpAddress },
    { ...vtep, node: "node-b", mac: "66:00:00:00:00:0b", ipv4Addr: other!, parentDeviceIp: "192.0.2.11" as IpAddress },
    vxlanRoute("10.65.2.0/26", "192.0.2.11"),
    ...stateA(host, a, b),
  );
  const route = () => host.namespace.run("ip", ["route", "show", "10.65.2.0/26"]).trim();
  expect(route()).toBe("");
  expect(host.lines.filter((line) => line.includes("kernel does not support the tunnel"))).toHaveLength(1);
  expect(host.lines.join("\n")).toContain("vxlanMode of an IPPool");
  const works = () => host.probe([80, 81].map((p) => ({ from: a.target, to: b.v4, port: p })));
  expect(await works()).toEqual(["reached", "silent"]);
  isMissing = false;
  await eventually(() => route().includes("via 10.65.2.0 dev vxlan.calico"), 20_000);
  expect(await works()).toEqual(["reached", "silent"]);
}, 60_000);

test("a kernel without token buckets: a workload with a bandwidth limit works without it, and the missing feature is logged", async () => {
  const { host, a, b } = await threePods("nftables");
  await using _ = host;
  host.wrapKernel = (kernel) => ({
    ...kernel,
    trafficControl: new Proxy(kernel.trafficControl!, {
      get: (of, name) => {
        const value: unknown = Reflect.get(of, name);
        if (name === "setTokenBucket")
          return () => {
            throw new NetlinkError("add a queue", "ENOENT"); // the error of such a kernel
          };
        return typeof value === "function" ? value.bind(of) : value;
      },
    }),
  });
  host.start();
  const limited = host.endpoint(b, { tiers: [tier(["p"])], qosControls: { ingressBandwidth: 1_000_000 } });
  await host.send(...stateA(host, a, b).slice(0, -1), limited, inSync);
  expect(await host.probe([80, 81].map((p) => ({ from: a.target, to: b.v4, port: p })))).toEqual(["reached", "silent"]);
  const said = host.lines.filter((line) => line.includes("setting a bandwidth limit failed"));
  expect(said).toHaveLength(1);
  expect(said[0]).toContain("sch_tbf");
}, 60_000);

test("if the event thread fails repeatedly, interfaces are polled with growing intervals, and this is logged", async () => {
  const { host, a, b } = await threePods("nftables");
  await using _ = host;
  let opened = 0;
  host.wrapKernel = (kernel) => ({
    ...kernel,
    openEvents: ({ onFailure }) => {
      opened++;
      queueMicrotask(() => onFailure(new Error("its thread ended")));
      return { [Symbol.asyncDispose]: async () => {} };
    },
  });
  host.start();
  await host.send(...stateA(host, a, b));
  expect(await host.probe([80, 81].map((p) => ({ from: a.target, to: b.v4, port: p })))).toEqual(["reached", "silent"]);
  // A change without an event is found by the next poll.
  const isDown = () => host.reports.some((r) => r.type === "workloadEndpointStatus" && r.status === "down");
  host.namespace.run("ip", ["link", "set", b.interfaceName, "down"]);
  await eventually(isDown, 20_000);
  expect(opened).toBeLessThan(12);
  expect(
    host.lines.filter((line) => line.startsWith("warn listening to interface events failed")).length,
  ).toBeGreaterThan(0);
}, 60_000);
