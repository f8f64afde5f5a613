// Tests the dual-nic finding in a lab: nodes have two interfaces, each Node has the address of eth1, and the rack's router
// expects the address of eth0, so the session stays Active. Doctor on any host must report the node, the interface and the
// setting that fixes it; with that setting the session must be established.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import type { Finding } from "../../../src/calicoctl/doctor/finding.ts";
import { down } from "../../../src/lab/down.ts";
import type { Lab } from "../../../src/lab/lab.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../../src/lab/options.ts";
import { datastoreEnvironment, rolePath } from "../../../src/lab/programs.ts";
import { changeSettings } from "../../../src/lab/settings.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";
import { up } from "../../../src/lab/up.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION } from "../../../src/model/index.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: this builds network namespaces");
const quiet = openTerminal({ quiet: true });
const options: LabOptions = { ...DEFAULT_OPTIONS, name: "testnic", nodes: 2, podsPerNode: 1, topology: "dual-nic" };
const ROUTER = "10.77.0.254";
let lab: Lab;

beforeAll(async () => {
  lab = await up(options, quiet);
}, 90_000);
afterAll(() => down(options.name, quiet), 30_000);

const calicoctl = (host: string, ...args: string[]) =>
  lab.host(host).run([rolePath("calicoctl"), ...args], { environment: datastoreEnvironment(lab.options, lab.plan) });

function doctor(host: string): { readonly code: number; readonly findings: readonly Finding[] } {
  const { code, stdout, stderr } = calicoctl(host, "doctor", "-o", "json");
  if (code !== 0 && code !== 3) throw new Error(stderr);
  const { findings } = JSON.parse(stdout) as { readonly findings: readonly Finding[] };
  return { code, findings };
}

/** Whether the router has an established session with this address. */
const isUp = (address: string): boolean => {
  const { stdout } = lab.host("tor1").run(["birdc", "-s", "/run/bird.ctl", "show", "protocols"]);
  const index = lab.plan.routers[0]?.neighbours.findIndex((each) => each.address === address) ?? -1;
  return new RegExp(`^peer${index + 1} .*Established`, "m").test(stdout);
};

test("Nodes have the addresses of eth1, and the sessions with the router stay down", async () => {
  const nodes = JSON.parse(lab.calicoctl(["get", "nodes", "-o", "json"])) as {
    readonly items: readonly { readonly spec: { readonly bgp: { readonly ipv4Address: string } } }[];
  };
  expect(nodes.items.map(({ spec }) => spec.bgp.ipv4Address)).toEqual(["10.78.0.11/24", "10.78.0.12/24"]);
  const status = await eventually(() => {
    const { stdout } = calicoctl("node1", "node", "status");
    return stdout.includes(`| ${ROUTER}`) && stdout;
  });
  expect(status).toMatch(new RegExp(`\\| ${ROUTER} +\\| global +\\| start +\\|[^|]*\\| (Active|Connect)`));
  expect(isUp("10.77.0.11")).toBe(false);
}, 30_000);

test("doctor on any host reports node, interface, address, peer and the setting that fixes it", () => {
  for (const host of ["node1", "node2", "tor1"]) {
    const { code, findings } = doctor(host);
    expect(code).toBe(3);
    const found = findings.filter(({ id }) => id === "dual-nic");
    expect(
      found.map(({ node, interface: nic, address, peer, setting }) => ({ node, nic, address, peer, setting })),
    ).toEqual(
      [1, 2].map((n) => ({
        node: `node${n}`,
        nic: "eth0",
        address: `10.77.0.1${n}`,
        peer: ROUTER,
        setting: "IP_AUTODETECTION_METHOD=interface=eth0",
      })),
    );
    expect(findings.filter(({ id }) => id !== "dual-nic")).toEqual([]);
  }
  const text = calicoctl("node2", "doctor").stdout;
  expect(text).toContain("node node1 connects to peer 10.77.0.254 (BGPPeer rack-v4) from 10.78.0.11 of eth1");
  expect(text).toContain("set IP_AUTODETECTION_METHOD=interface=eth0 for calico-node on node1");
});

test("calico-node logs a warning at startup that the peer is in the network of eth0", () => {
  const log = readFileSync(lab.folder.log("node2-calico-node"), "utf8");
  const warning = log.split("\n").find((line) => line.includes("BGP peer is in the network of an interface"));
  for (const words of [
    "[WARN]",
    'because="BGPPeer rack-v4"',
    'interface="eth0"',
    'interfaceAddress="10.77.0.12"',
    'nodeAddress="10.78.0.12"',
    `peer="${ROUTER}"`,
    'set="IP_AUTODETECTION_METHOD=interface=eth0"',
  ])
    expect(warning).toContain(words);
});

test("a BGPPeer for a node's eth0 is also reported", () => {
  lab.apply([
    {
      apiVersion: API_VERSION,
      kind: "BGPPeer",
      metadata: { name: "to-node1" },
      spec: { node: "node2", peerIP: "10.77.0.11", asNumber: 64512 },
    },
  ]);
  const found = doctor("node2").findings.find(({ object }) => object === "BGPPeer(to-node1)");
  expect(found).toMatchObject({
    id: "dual-nic",
    node: "node1",
    interface: "eth0",
    address: "10.77.0.11",
    setting: "IP_AUTODETECTION_METHOD=interface=eth0",
  });
});

test("with the setting, the sessions are established and doctor has no findings", async () => {
  for (const node of ["node1", "node2"]) {
    const [finding] = doctor("tor1").findings.filter((each) => each.id === "dual-nic" && each.node === node);
    await changeSettings(lab, node, [finding?.setting ?? ""]);
  }
  for (const address of ["10.77.0.11", "10.77.0.12"])
    await eventually(() => isUp(address), 40_000, `session with ${address}`);
  await eventually(() => doctor("node1").code === 0 && doctor("node2").code === 0, 30_000, "no findings");
  const block = lab.host("tor1").run(["ip", "route", "show", "10.65.0.0/16", "proto", "bird"]);
  expect(block.code).toBe(0);
}, 120_000);
