import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryRtnetlink, NetlinkError } from "../../kernel/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import { createLogger } from "../../lib/log/log.ts";
import { prepareHost } from "./prepare-host.ts";

type Options = Parameters<typeof prepareHost>[0];

/** A host as the last agent, or another one, may have left it. */
function leftBehind() {
  const routes = memoryRtnetlink();
  for (const name of ["eth0", "vxlan.calico", "vxlan-v6.calico", "tunl0", "vxlan.theirs"])
    routes.links.create({ name, type: { kind: "dummy" } });
  routes.links.create({ name: "wireguard.cali", type: { kind: "wireguard" } });
  routes.links.create({ name: "wg-v6.cali", type: { kind: "dummy" } }); // of another program, despite its name
  const address = (link: string, text: string) =>
    routes.addresses.replace({
      link: routes.links.get(link)?.index ?? 0,
      address: text as IpAddress,
      length: 32,
    });
  address("tunl0", "10.65.0.1");
  address("tunl0", "10.65.0.9");
  address("eth0", "192.0.2.10");
  return {
    routes,
    names: () =>
      routes.links
        .list()
        .map(({ name }) => name)
        .sort(),
    addresses: (link: string) =>
      routes.addresses.list({ version: 4, link: routes.links.get(link)?.index ?? 0 }).map((each) => each.address),
  };
}

function prepare(routes: Options["kernel"]["routes"], more: { parameters?: object; facts?: object } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "calico-start-"));
  try {
    const mtuFile = join(folder, "lib", "mtu");
    const settings = new Map<string, string>();
    const modules: string[] = [];
    const logged: string[] = [];
    prepareHost({
      parameters: {
        ...{ IPForwarding: "Enabled", Ipv6Support: true, RequireMTUFile: false, IpInIpEnabled: "auto" },
        ...{ WireguardEnabled: false, WireguardEnabledV6: false },
        ...{ WireguardInterfaceName: "wireguard.cali", WireguardInterfaceNameV6: "wg-v6.cali" },
        ...more.parameters,
      } as Options["parameters"],
      facts: {
        ...{ hostname: "node-a", ipipEnabled: false, vxlanEnabled: false, vxlanEnabledV6: false },
        ...{ noEncapNeeded: false, ipvs: false },
        ...more.facts,
      },
      kernel: {
        routes,
        sysctls: {
          read: (path) => settings.get(path.join(".")) ?? "0",
          write: (path, value) => void settings.set(path.join("."), String(value)),
        },
      },
      podMtu: 1450,
      mtuFile,
      loadModule: (name) => modules.push(name),
      logger: createLogger({ level: "debug", write: ({ level, message }) => void logged.push(`${level} ${message}`) }),
    });
    return { settings: Object.fromEntries(settings), modules, logged, mtu: readFileSync(mtuFile, "utf8") };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("FD-013 forwarding and accounting are enabled, modules are loaded, and the pod MTU is written to a file", () => {
  const { settings, modules, mtu } = prepare(leftBehind().routes);
  expect(settings).toEqual({
    "net.ipv4.ip_forward": "1",
    "net.ipv6.conf.all.forwarding": "1",
    "net.netfilter.nf_conntrack_acct": "1",
  });
  expect([modules, mtu]).toEqual([["nf_conntrack_proto_sctp"], "1450"]);
  const other = { IPForwarding: "Disabled", WireguardEnabledV6: true };
  const without = prepare(leftBehind().routes, { parameters: other });
  expect(without.settings).toEqual({ "net.netfilter.nf_conntrack_acct": "1" });
  expect(without.modules).toEqual(["nf_conntrack_proto_sctp", "wireguard"]);
  expect(prepare(leftBehind().routes, { parameters: { Ipv6Support: false } }).settings).not.toHaveProperty([
    "net.ipv6.conf.all.forwarding",
  ]);
});

test("FD-013 devices of disabled features are deleted, tunl0 loses its addresses, and other devices stay", () => {
  const host = leftBehind();
  prepare(host.routes);
  expect(host.names()).toEqual(["eth0", "lo", "tunl0", "vxlan.theirs", "wg-v6.cali"]);
  expect([host.addresses("tunl0"), host.addresses("eth0")]).toEqual([[], ["192.0.2.10" as IpAddress]]);
});

test("FD-013 devices of enabled features, and an IPIP device with a fixed setting, stay", () => {
  const host = leftBehind();
  const on = { vxlanEnabled: true, vxlanEnabledV6: true };
  prepare(host.routes, { facts: on, parameters: { IpInIpEnabled: false, WireguardEnabled: true } });
  expect(host.names()).toEqual([
    ...["eth0", "lo", "tunl0", "vxlan-v6.calico", "vxlan.calico", "vxlan.theirs", "wg-v6.cali", "wireguard.cali"],
  ]);
  expect(host.addresses("tunl0")).toHaveLength(2);
  prepare(host.routes, { facts: { ...on, ipipEnabled: true } });
  expect(host.addresses("tunl0")).toHaveLength(2);
});

test("FD-013 an error is logged, and the other steps are done", () => {
  const host = leftBehind();
  const links = new Proxy(host.routes.links, {
    get: (of, name) => {
      const value: unknown = Reflect.get(of, name);
      if (name === "delete")
        return (link: string) => {
          throw new NetlinkError(`delete link ${link}`, "EPERM");
        };
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
  const { logged, settings } = prepare({ ...host.routes, links });
  expect(logged.filter((line) => line.startsWith("warn")).length).toBe(3);
  expect(Object.keys(settings)).toHaveLength(3);
  expect(host.addresses("tunl0")).toEqual([]);
});

test("FD-013 an MTU file that cannot be written is fatal only if it is required", () => {
  const folder = mkdtempSync(join(tmpdir(), "calico-start-"));
  writeFileSync(join(folder, "lib"), "a file where a folder should be");
  try {
    const start = (RequireMTUFile: boolean) =>
      prepareHost({
        parameters: { RequireMTUFile, IPForwarding: "Disabled", IpInIpEnabled: false } as Options["parameters"],
        facts: { vxlanEnabled: true, vxlanEnabledV6: true, ipipEnabled: true } as Options["facts"],
        kernel: { routes: memoryRtnetlink(), sysctls: { read: () => "1", write: () => {} } },
        podMtu: 1450,
        mtuFile: join(folder, "lib", "mtu"),
        loadModule: () => {},
        logger: createLogger({ level: "debug", write: () => {} }),
      });
    start(false);
    expect(() => start(true)).toThrow();
  } finally {
    rmSync(folder, { recursive: true });
  }
});
