// Tests sessions between real BIRDs, configured by the BGP service, in namespaces on one switch.
import { expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { sessionCause } from "../../../src/bgp/index.ts";
import { parseCidr } from "../../../src/lib/ip/ip.ts";
import { eventually, pollUntil } from "../../../src/lib/testing/eventually.ts";
import { signatureCounts } from "../../../src/node/bgp/session-evidence.ts";
import { RouterNetwork } from "./routers.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: this builds network namespaces");
const has =
  (...wanted: string[]) =>
  (seen: readonly string[]) =>
    JSON.stringify(seen) === JSON.stringify(wanted);

/** Two nodes that have routes to each other's blocks. */
async function twoNodes(): Promise<RouterNetwork> {
  const net = await RouterNetwork.create();
  try {
    await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
    for (const number of [1, 2]) await net.addNode(`n${number}`, number, { families: [4] });
    await pollUntil(
      () => net.routes("n2", 4),
      (text) => text.includes("192.168.1.0/26"),
    );
    return net;
  } catch (error) {
    await net[Symbol.asyncDispose]();
    throw error;
  }
}

test.concurrent("NB-080 NB-107 NB-109 NB-122 a mesh of three nodes, in both families: all kernels get routes to all blocks, and lose those of a deleted node", async () => {
  await using net = await RouterNetwork.create();
  await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
  await net.put("IPPool", "p6", { cidr: "fd80::/16" });
  for (const number of [1, 2, 3]) await net.addNode(`n${number}`, number);
  await pollUntil(() => net.established("n1", 4), has("10.77.0.2", "10.77.0.3"));
  await pollUntil(() => net.established("n3", 6), has("fd77::1", "fd77::2"));
  const v4 = await pollUntil(
    () => net.routes("n1", 4),
    (text) => text.includes("192.168.2.0/26") && text.includes("192.168.3.0/26"),
  );
  expect(v4).toContain("192.168.2.0/26 via 10.77.0.2 dev eth0 metric 1024");
  expect(v4).toContain("blackhole 192.168.1.0/26");
  await pollUntil(
    () => net.routes("n1", 6),
    (text) => text.includes("fd80:2::/122") && text.includes("fd80:3::/122"),
  );

  await net.datastore.delete({ type: "resource", kind: "Node", name: "n3" });
  await pollUntil(
    () => net.routes("n1", 4),
    (text) => !text.includes("192.168.3.0/26"),
  );
  expect(net.routes("n1", 4)).toContain("192.168.2.0/26 via 10.77.0.2");
}, 90_000);

test.concurrent("NB-087 NB-083 reflectors by selector: six clients learn each other's blocks through two reflectors, or through one if the other fails", async () => {
  await using net = await RouterNetwork.create();
  await net.put("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false });
  await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
  await net.put("BGPPeer", "to-reflectors", { nodeSelector: "all()", peerSelector: "has(rr)" });
  for (const number of [1, 2])
    await net.addNode(`r${number}`, number, { bgp: { routeReflectorClusterID: "244.0.0.1" }, labels: { rr: "yes" } });
  const clients = [3, 4, 5, 6, 7, 8];
  for (const number of clients) await net.addNode(`c${number}`, number);
  for (const [own, other] of [
    [1, 2],
    [2, 1],
  ])
    await pollUntil(
      () => net.established(`r${own}`, 4),
      has(...[other, ...clients].map((number) => `10.77.0.${number}`)),
      40_000,
    );
  for (const number of clients) await pollUntil(() => net.established(`c${number}`, 4), has("10.77.0.1", "10.77.0.2"));
  const routes = await pollUntil(
    () => net.routes("c5", 4),
    (text) => text.includes("192.168.3.0/26") && text.includes("192.168.1.0/26"),
  );
  expect(routes).toContain("192.168.3.0/26 via 10.77.0.3 dev eth0"); // directly to the client, not through the reflector
  for (const number of clients)
    await pollUntil(
      () => net.routes(`c${number}`, 4),
      (text) => [1, 2, ...clients].every((n) => n === number || text.includes(`192.168.${n}.0/26 via 10.77.0.${n} `)),
    );
  // One reflector is sufficient.
  await net.killBird("r1", 4);
  await pollUntil(() => net.established("c5", 4), has("10.77.0.2"));
  expect(net.routes("c5", 4)).toContain("192.168.8.0/26 via 10.77.0.8 dev eth0");
}, 90_000);

test.concurrent("NB-107 NB-116 of the addresses inside a block, only migrating ones are announced; the first route of a pod, by the CNI plugin, is not", async () => {
  await using net = await twoNodes();
  net.ip("n1", "link add cali1 type veth peer name pod");
  for (const link of ["cali1", "pod"]) net.ip("n1", `link set ${link} up`);
  net.ip("n1", "route add 192.168.1.1/32 dev cali1 scope link"); // as written by the CNI plugin
  net.ip("n1", "route add 192.168.1.2/32 dev cali1 scope link proto 80 metric 1024"); // as written by Felix
  net.ip("n1", "route add 192.168.1.3/32 dev cali1 scope link proto 80 metric 512"); // migrating to this node
  net.ip("n1", "route add 192.168.77.1/32 dev cali1 scope link proto 80 metric 1024"); // borrowed: in no block of this node
  const routes = await pollUntil(
    () => net.routes("n2", 4),
    (text) => ["192.168.1.3 ", "192.168.77.1 "].every((address) => text.includes(address)),
  );
  expect(routes).not.toMatch(/192\.168\.1\.[12] /);
}, 60_000);

test.concurrent("NB-107 a block claimed for an existing pod is announced before the pod's own route is withdrawn", async () => {
  await using net = await twoNodes();
  let seen = "";
  const listener = net.listen("n2", ["ip", "monitor", "route"], (text) => (seen += text));
  let tries = 0;
  await eventually(() => {
    net.ip("n2", `route add blackhole 198.18.${tries++}.0/24`); // until the monitor is ready
    return seen !== "";
  });
  net.ip("n1", "link add cali1 type veth peer name pod");
  for (const link of ["cali1", "pod"]) net.ip("n1", `link set ${link} up`);
  net.ip("n1", "route add 192.168.77.1/32 dev cali1 scope link proto 80 metric 1024");
  await eventually(() => seen.includes("192.168.77.1 via 10.77.0.1"));
  const key = { type: "blockAffinity", affinityType: "host", host: "n1", cidr: parseCidr("192.168.77.0/26") } as const;
  await net.datastore.apply({ key, value: { state: "confirmed", deleted: false } });
  await eventually(() => seen.includes("Deleted 192.168.77.1 via"));
  listener.kill();
  const changes = seen.split("\n").filter((line) => line.includes("192.168.77."));
  expect(changes.map((line) => line.split(" via ")[0])).toEqual([
    "192.168.77.1",
    "192.168.77.0/26",
    "Deleted 192.168.77.1",
  ]);
}, 60_000);

test.concurrent("NB-113 NB-106 BIRD does not program routes of a VXLAN pool, and does not announce a pool with disabled export", async () => {
  await using net = await RouterNetwork.create();
  await net.put("IPPool", "p4", { cidr: "192.168.1.0/24", vxlanMode: "Always" });
  await net.put("IPPool", "q4", { cidr: "192.168.2.0/24", disableBGPExport: true });
  for (const number of [1, 2, 3]) await net.addNode(`n${number}`, number);
  await net.put("IPPool", "r4", { cidr: "192.168.3.0/24" });
  await pollUntil(
    () => net.routes("n2", 4),
    (text) => text.includes("192.168.3.0/26"),
  );
  expect(net.routes("n2", 4)).not.toContain("192.168.1.0/26"); // VXLAN: programmed by Felix
  expect(net.routes("n1", 4)).not.toContain("192.168.2.0/26"); // not announced
}, 60_000);

test.concurrent("NB-086 NB-104 NB-105 other ports, and BIRD bound to the node's address", async () => {
  await using net = await RouterNetwork.create();
  await net.put("BGPConfiguration", "default", { listenPort: 1790, bindMode: "NodeIP" });
  for (const number of [1, 2]) await net.addNode(`n${number}`, number);
  await pollUntil(() => net.established("n1", 4), has("10.77.0.2"));
  const listening = execFileSync("ip", ["netns", "exec", net.nameOf("n1"), "ss", "-Hltn"], { encoding: "utf8" });
  expect(listening).toContain("10.77.0.1:1790");
  expect(listening).not.toContain("0.0.0.0:1790");
}, 60_000);

test.concurrent("different passwords, or a password on one side only, are detected from the kernel's counters", async () => {
  await using net = await RouterNetwork.create();
  net.addHost("tor", 254);
  const file = join(net.folder, "tor.conf");
  const router = (password: string) => `router id 10.77.0.254;
protocol device {}
protocol bgp node { local as 65100; neighbor 10.77.0.1 as 64512; ${password} connect retry time 2; ipv4 { import all; export all; }; }
`;
  writeFileSync(file, router('password "theirs";'));
  net.start("tor", ["bird", "-f", "-c", file, "-s", join(net.folder, "tor.ctl")]);
  const password = { secretKeyRef: { name: "bgp", key: "ours" } };
  await net.put("BGPPeer", "tor", { peerIP: "10.77.0.254", asNumber: 65100, password });
  await net.addNode("n1", 1, { families: [4], passwords: { get: () => "ours", watch: async () => {} } });
  const cause = async () => {
    const counters = execFileSync("ip", ["netns", "exec", net.nameOf("n1"), "cat", "/proc/net/netstat"], {
      encoding: "utf8",
    });
    const signatures = signatureCounts(counters);
    const [session] = await net.sessions("n1", 4).catch(() => []);
    if (session === undefined || signatures === undefined) return "";
    return sessionCause(session, { hasPassword: true, signatures: { ...signatures, wrong: signatures.wrong - seen } });
  };
  let seen = 0;
  await pollUntil(
    cause,
    (text) => text?.startsWith("password: the two sides have different passwords") ?? false,
    40_000,
  );
  writeFileSync(file, router(""));
  execFileSync("birdc", ["-s", join(net.folder, "tor.ctl"), "configure"]);
  seen = Number.POSITIVE_INFINITY;
  await pollUntil(
    cause,
    (text) => text?.startsWith("password: this node has a password, but the peer sends none") ?? false,
    40_000,
  );
}, 100_000);

test.concurrent("neither peers nor the kernel lose a route when BIRD is killed and restarted", async () => {
  await using net = await RouterNetwork.create();
  await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
  for (const number of [1, 2]) await net.addNode(`n${number}`, number);
  const isWhole = () =>
    net.routes("n2", 4).includes("192.168.1.0/26") && net.routes("n1", 4).includes("192.168.2.0/26");
  await pollUntil(isWhole, Boolean);
  let lost = 0;
  const watch = setInterval(() => (lost += isWhole() ? 0 : 1), 50);
  await net.killBird("n1", 4);
  net.startBird("n1", 4, "-R"); // like the supervisor: the kernel's routes are kept until the peers have sent theirs
  await pollUntil(() => net.established("n1", 4), has("10.77.0.2"));
  await pollUntil(
    () => net.status("n1", 4),
    ({ isRecovering }) => !isRecovering,
  );
  clearInterval(watch);
  expect(lost).toBe(0);
}, 60_000);
