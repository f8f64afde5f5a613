import { expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { environmentText, serviceUnit, shownEnvironment } from "../../../node/index.ts";
import { HOST_COLLECTS } from "../../node/collects.ts";
import { isKernelNewEnough, moduleFinder, NEEDS } from "../../node/modules.ts";
import { isFelix } from "../../node/processes.ts";
import { CommandLine } from "../../testing/command-line.ts";
import { session as sessionWith } from "../../testing/healthy.ts";
import { describeSessions } from "./status.ts";

const session = (
  kind: "mesh" | "global" | "node" | "other",
  neighbor: string,
  bgpState: "Established" | "Active",
  error?: string,
) =>
  sessionWith(neighbor, {
    kind,
    state: bgpState === "Established" ? "up" : "start",
    since: "2026-01-01",
    bgpState,
    info: error === undefined ? "" : `Socket: ${error}`,
    lastError: error,
  });

test("TC-C35 NB-141 sessions are printed as a table with the peer type, followed by the causes of those that are down", () => {
  const text = describeSessions(4, [
    session("mesh", "172.17.8.102", "Established"),
    session("node", "192.0.2.9", "Active", "Connection refused"),
    session("other", "192.0.2.8", "Active"),
  ]);
  expect(text.split("\n")).toEqual([
    "+--------------+-------------------+-------+------------+-----------------------------------+",
    "| PEER ADDRESS | PEER TYPE         | STATE | SINCE      | INFO                              |",
    "+--------------+-------------------+-------+------------+-----------------------------------+",
    "| 172.17.8.102 | node-to-node mesh | up    | 2026-01-01 | Established                       |",
    "| 192.0.2.9    | node specific     | start | 2026-01-01 | Active Socket: Connection refused |",
    "+--------------+-------------------+-------+------------+-----------------------------------+",
    "192.0.2.9: connection refused: nothing listens on the peer's BGP port, or a firewall rejects the connection",
    "",
  ]);
  expect(describeSessions(6, [])).toBe("No IPv6 peers found.\n");
});

test("TC-C35 Felix is recognized by any of its program names", () => {
  for (const words of [
    ["calico-felix"],
    ["/usr/bin/calico-felix", "-c", "x"],
    ["calico-node", "-felix"],
    ["/opt/calico-node", "--felix"],
  ])
    expect(isFelix({ pid: 1, words })).toBe(true);
  for (const words of [["calico-node"], ["calico-node", "-confd"], ["vi", "calico-felix"]])
    expect(isFelix({ pid: 1, words })).toBe(false);
});

test("TC-C36 modules are found if they are loaded, loadable, built in or in the kernel's configuration", () => {
  const files: Record<string, string> = {
    "/lib/modules/6.1/modules.dep": "kernel/net/netfilter/xt_set.ko.xz: kernel/net/netfilter/ipset/ip_set.ko.xz\n",
    "/lib/modules/6.1/modules.builtin": "kernel/net/ipv4/netfilter/ip_tables.ko\n",
    "/proc/modules": "xt_mark 16384 2 - Live 0x0\n",
    "/boot/config-6.1": "CONFIG_NETFILTER_XT_MATCH_ADDRTYPE=m\n# CONFIG_NETFILTER_XT_MATCH_U32 is not set\n",
    "/own": "CONFIG_NETFILTER_XT_MATCH_U32=y\n",
  };
  const kernel = {
    release: "6.1",
    exists: (path: string) => path === "/sys/module/vfio_pci",
    read: (path: string) => files[path],
  };
  const has = moduleFinder(kernel);
  for (const name of ["xt_set", "ip_set", "ip_tables", "xt_mark", "xt_addrtype", "vfio-pci"])
    expect(has(name)).toBe(true);
  for (const name of ["xt_u32", "set", "xt_rpfilter"]) expect(has(name)).toBe(false);
  expect(moduleFinder(kernel, "/own")("xt_u32")).toBe(true);
  expect(NEEDS.find(({ names }) => names.includes("xt_u32"))?.optional).toBe(true);
});

for (const [release, want] of [
  ["2.6.23", false],
  ["2.6.24-1-amd64", true],
  ["3.0", true],
  ["6.1.0-25-cloud-amd64", true],
] as const)
  test(`TC-C36 kernel ${release} is ${want ? "new enough" : "too old"}`, () =>
    expect(isKernelNewEnough(release)).toBe(want));

test("TC-C37 node run --dryrun prints the unit and its environment, and rejects invalid flags", async () => {
  using line = new CommandLine();
  const { code, out } = await line.run(
    "node",
    "run",
    "--dryrun",
    "--name",
    "n1",
    "--ip",
    "192.0.2.1/24",
    "--as",
    "64512",
    "--no-default-ippools",
  );
  expect(code).toBe(0);
  for (const text of [
    'NODENAME="n1"',
    'IP="192.0.2.1/24"',
    'AS="64512"',
    'NO_DEFAULT_POOLS="true"',
    'DATASTORE_TYPE="sqlite"',
    "ExecStart=",
    "systemctl enable --now calico-node.service",
  ])
    expect(out).toContain(text);
  expect(await line.run("node", "run", "--dryrun", "--as", "foo")).toEqual({
    code: 1,
    out: "Error executing command: invalid AS Number specified: foo\n",
    err: "",
  });
  expect((await line.run("node", "run", "--dryrun", "--backend", "foo")).err).toBe(
    "Error executing command: unknown backend 'foo'\n",
  );
  for (const args of [
    ["--ip", "fd00::1"],
    ["--ip6", "10.0.0.1"],
    ["--ip-autodetection-method", "magic"],
  ])
    expect((await line.run("node", "run", "--dryrun", ...args)).code).toBe(1);
});

test("TC-C37 the printed environment contains no password or token, the written one does", () => {
  const env = { ETCD_PASSWORD: "hunter2", CALICO_K8SAPITOKEN: "eyJ", ETCD_USERNAME: "felix", CALICO_ETCD_PASSWORD: "" };
  expect(shownEnvironment(env)).toBe(
    'CALICO_K8SAPITOKEN="<secret>"\nETCD_PASSWORD="<secret>"\nETCD_USERNAME="felix"\n',
  );
  expect(environmentText(env)).toContain("hunter2");
});

test("TC-C37 node run --dryrun prints no secrets", async () => {
  using line = new CommandLine();
  Object.assign(line.env, { ETCD_PASSWORD: "hunter2", CALICO_K8SAPITOKEN: "eyJ" });
  const { code, out } = await line.run("node", "run", "--dryrun", "--name", "n1");
  expect(code).toBe(0);
  expect(out).toContain('ETCD_PASSWORD="<secret>"');
  expect(out).not.toMatch(/hunter2|eyJ/);
});

test("TC-C37 the unit does not refer to the documentation of another program", () =>
  expect(serviceUnit({ executable: "/bin/true", environmentFile: "/x" })).not.toContain("Documentation="));

test("TC-C37 values of the environment may contain quotes and dollar signs", () =>
  expect(environmentText({ B: 'a"b$c\\d`e', A: "1", C: undefined, D: "" })).toBe('A="1"\nB="a\\"b\\$c\\\\d\\`e"\n'));

test.skipIf(spawnSync("systemd-analyze", ["--version"]).status !== 0)("TC-C37 systemd accepts the unit", () => {
  using line = new CommandLine();
  const unit = join(line.folder, "calico-node.service");
  writeFileSync(unit, serviceUnit({ executable: "/bin/true", environmentFile: "/etc/calico/calico-node.env" }));
  const { status, stderr } = spawnSync("systemd-analyze", ["verify", unit], { encoding: "utf8" });
  expect(stderr.split("\n").filter((text) => text.includes("calico-node.service"))).toEqual([]);
  expect(status).toBe(0);
});

test("TC-C38 each collected command has its own file", () => {
  const files = HOST_COLLECTS.map(({ file }) => file);
  expect(new Set(files).size).toBe(files.length);
  for (const program of ["ip", "nft", "iptables-save", "ipset", "birdc", "journalctl"])
    expect(HOST_COLLECTS.some(({ command }) => command[0] === program)).toBe(true);
});
