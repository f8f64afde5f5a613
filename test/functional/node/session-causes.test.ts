// Tests that `calicoctl node status` explains why a session is not established. Each cause is produced by a real BIRD or FRR as
// the peer. Most tests run concurrently.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
const options: LabOptions = { ...DEFAULT_OPTIONS, name: "testcause", nodes: 1, podsPerNode: 0, topology: "racks" };
const NODE = "10.80.0.11";
const AS = { node: 65001, tor: 65101 };
const METRICS_PORT = 19900;
let lab: Lab;
/** The lab's shared folder, as mounted in its hosts. */
const SHARED = "/var/lib/calico/datastore";

beforeAll(async () => {
  lab = await up(options, quiet);
  await changeSettings(lab, "node1", [`CALICO_BGP_METRICS_PORT=${METRICS_PORT}`]);
}, 90_000);
afterAll(() => down(options.name, quiet), 30_000);

const environment = () => datastoreEnvironment(lab.options, lab.plan);
const status = () =>
  lab.host("node1").run([rolePath("calicoctl"), "node", "status"], { environment: environment() }).stdout;
const peer = (name: string, spec: object) =>
  lab.apply([{ apiVersion: API_VERSION, kind: "BGPPeer", metadata: { name }, spec: { node: "node1", ...spec } }]);
/** The line below the table with the cause for one peer. */
const causeOf = (neighbor: string) =>
  status()
    .split("\n")
    .find((line) => line.startsWith(`${neighbor}: `))
    ?.slice(neighbor.length + 2);
const expectCause = (neighbor: string, cause: RegExp, withinMs = 60_000) =>
  eventually(() => cause.test(causeOf(neighbor) ?? "") && causeOf(neighbor), withinMs, `${neighbor}: ${cause}`).catch(
    (error) => {
      throw new Error(`${error}; status: ${status()}`);
    },
  );

/** Starts another BIRD on the router, with its own address and port. */
function startBird(name: string, address: string, port: number, session: string) {
  const tor = lab.host("tor1");
  tor.run(["ip", "address", "add", `${address}/24`, "dev", "eth0"]);
  const config = `router id ${address};
protocol device {}
protocol bgp node { local ${address} port ${port} as ${AS.tor}; strict bind yes; connect retry time 2; error wait time 1,10; ${session} ipv4 { import all; export all; }; }
`;
  writeFileSync(join(lab.folder.shared, `${name}.conf`), config);
  return tor.startProgram(name, ["bird", "-f", "-c", `${SHARED}/${name}.conf`, "-s", `/run/${name}.ctl`], {});
}

test("the session with the router is established", async () => {
  await eventually(() => status().includes("Established"), 40_000, "established");
  expect(causeOf("10.80.0.1")).toBeUndefined();
}, 60_000);

test.concurrent("connection refused: nothing listens on the peer's port", async () => {
  peer("refused", { peerIP: "10.80.0.1:1799", asNumber: AS.tor });
  await expectCause("10.80.0.1 port 1799", /^connection refused: nothing listens/);
}, 60_000);

test.concurrent("no route", async () => {
  lab.host("node1").run(["ip", "route", "del", "default"]);
  peer("no-route", { peerIP: "203.0.113.1", asNumber: AS.tor });
  await expectCause("203.0.113.1", /^no route: this host has no route/);
}, 60_000);

test.concurrent("a directly connected peer that is down is not reported as a missing route", async () => {
  peer("dead", { peerIP: "10.80.0.250", asNumber: AS.tor });
  await expectCause("10.80.0.250", /no response on the local network: a route exists/);
}, 60_000);

test.concurrent("wrong source address: the peer expects another one", async () => {
  startBird("other", "10.80.0.203", 1793, "neighbor 10.80.0.77 as 65001; multihop;");
  peer("other", { peerIP: "10.80.0.203:1793", asNumber: AS.tor });
  await expectCause(
    "10.80.0.203 port 1793",
    new RegExp(`does not expect connections from ${NODE} \\(wrong source address\\)`),
  );
}, 60_000);

test.concurrent("AS mismatch, reported by either side", async () => {
  peer("asn", { peerIP: "10.80.0.204:1794", asNumber: AS.tor });
  startBird("asn", "10.80.0.204", 1794, `neighbor ${NODE} as 64999; multihop;`);
  await expectCause("10.80.0.204 port 1794", /^AS numbers do not match: this node has 65001 and expects 65101/);
  peer("asn2", { peerIP: "10.80.0.207:1797", asNumber: 65999 });
  startBird("asn2", "10.80.0.207", 1797, `neighbor ${NODE} as 65001; multihop;`);
  await expectCause(
    "10.80.0.207 port 1797",
    /^AS numbers do not match: this node expects 65999, but the peer has 65101/,
  );
}, 180_000);

test.concurrent("hold timer: the peer hangs", async () => {
  const bird = startBird("hang", "10.80.0.205", 1795, `neighbor ${NODE} as 65001; multihop; hold time 3;`);
  peer("hang", { peerIP: "10.80.0.205:1795", asNumber: AS.tor });
  await eventually(() => /10\.80\.0\.205 port 1795 .*Established/.test(status()), 40_000, "established");
  process.kill(bird.pid, "SIGSTOP");
  try {
    await expectCause("10.80.0.205 port 1795", /^hold timer expired/);
  } finally {
    process.kill(bird.pid, "SIGCONT");
  }
}, 90_000);

/** Starts FRR on the router with one session, like `startBird`. */
function startFrr(name: string, address: string, port: number, expectsAs: number, more = "") {
  const tor = lab.host("tor1");
  tor.run(["ip", "address", "add", `${address}/24`, "dev", "eth0"]);
  const folder = join(lab.folder.shared, name);
  mkdirSync(folder);
  chmodSync(folder, 0o777);
  writeFileSync(
    join(folder, "bgpd.conf"),
    `hostname tor\nrouter bgp ${AS.tor}\n bgp router-id ${address}\n no bgp ebgp-requires-policy\n neighbor ${NODE} remote-as ${expectsAs}\n neighbor ${NODE} update-source ${address}\n neighbor ${NODE} ebgp-multihop\n${more}`,
  );
  const inside = `${SHARED}/${name}`;
  const files = ["-f", `${inside}/bgpd.conf`, "-i", `${inside}/pid`, "--vty_socket", inside];
  const listens = ["-p", String(port), "-l", address, "-A", "127.0.0.1", "-P", "0"];
  const user = ["-u", "root", "-g", "root"];
  tor.startProgram(name, ["/usr/lib/frr/bgpd", "-Z", "-n", "-S", ...user, ...files, ...listens], {});
}

test.concurrent("password: FRR has one and the node has none", async () => {
  startFrr("frr", "10.80.0.206", 1796, AS.node, ` neighbor ${NODE} password s3cret\n`);
  peer("password", { peerIP: "10.80.0.206:1796", asNumber: AS.tor });
  await expectCause(
    "10.80.0.206 port 1796",
    /^password: the peer has a password, but this node has none \(this host dropped \d+/,
  );
}, 90_000);

test.concurrent("AS mismatch reported by FRR: the number in its error is the node's and is not mistaken for FRR's", async () => {
  startFrr("frr-asn", "10.80.0.208", 1798, 64999);
  peer("asn3", { peerIP: "10.80.0.208:1798", asNumber: AS.tor });
  await expectCause("10.80.0.208 port 1798", /^AS numbers do not match: this node has 65001 and expects 65101/);
}, 90_000);

test("doctor on the node reports the same causes, and metrics count the same sessions", async () => {
  const { stdout, code } = lab.host("node1").run([rolePath("calicoctl"), "doctor"], { environment: environment() });
  expect(code).toBe(3);
  for (const words of [
    "connection refused: nothing listens",
    "no route: this host",
    "AS numbers do not match",
    "password: the peer has a password",
  ])
    expect(stdout).toContain(words);
  expect(stdout).toContain("has no route to 169.254.1.1"); // an earlier test deleted the default route
  expect(stdout).toContain(
    `node node1 expects AS 65999 from peer 10.80.0.207, which is in AS 65101: calicoctl patch bgppeer asn2 -p '{"spec":{"asNumber":65101}}'`,
  );
  expect(stdout).toContain(
    "node node1 is in AS 65001 and expects AS 65101 from peer 10.80.0.208, which expects another AS",
  );
  const page = await eventually(
    () => {
      const { stdout: text } = lab.host("node1").run(["curl", "-s", `http://127.0.0.1:${METRICS_PORT}/metrics`]);
      return /bgp_peers\{ip_version="4",status="Established"\} [12]/.test(text) && text;
    },
    60_000,
    "metrics",
  );
  expect(page).toContain('bgp_peer_established{ip_version="4",peer="10.80.0.1",type="node specific"} 1');
  expect(page).toContain('bgp_peer_established{ip_version="4",peer="203.0.113.1",type="node specific"} 0');
}, 120_000);

test("wrong source address: the Node has an address that the host does not have", async () => {
  lab.host("node1").run(["ip", "address", "add", "10.80.0.99/24", "dev", "eth0"]);
  await changeSettings(lab, "node1", ["IP=10.80.0.99"], { wait: false });
  await eventually(
    () => lab.calicoctl(["get", "node", "node1", "-o", "yaml"]).includes("10.80.0.99"),
    30_000,
    "the Node",
  );
  lab.host("node1").run(["ip", "address", "del", "10.80.0.99/24", "dev", "eth0"]);
  await expectCause("10.80.0.1", /^wrong source address: the Node has 10\.80\.0\.99/);
}, 120_000);
