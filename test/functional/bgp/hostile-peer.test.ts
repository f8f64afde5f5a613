// Tests attacks by a BGP speaker next to a node: a configured peer that announces routes of others, and a speaker that is not a
// peer. All speakers are real BIRDs.
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pollUntil } from "../../../src/lib/testing/eventually.ts";
import { RouterNetwork } from "./routers.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: this builds network namespaces");

/** Starts a router that has one session with n1 and announces static routes. */
function startRouter(
  net: RouterNetwork,
  name: string,
  number: number,
  routes: readonly string[],
  { as = 65100, password = "" } = {},
): void {
  net.addHost(name, number);
  const file = join(net.folder, `${name}.conf`);
  writeFileSync(
    file,
    `router id 10.77.0.${number};
protocol device {}
protocol static { ipv4; ${routes.map((route) => `route ${route} blackhole;`).join(" ")} }
protocol bgp node { local as ${as}; neighbor 10.77.0.1 as 64512; ${password} connect retry time 1; ipv4 { import all; export all; }; }
`,
  );
  net.start(name, ["bird", "-f", "-c", file, "-s", join(net.folder, `${name}.ctl`)]);
}

/** Creates a node with the block 192.168.1.0/26. */
async function makeNode(net: RouterNetwork, password?: string): Promise<void> {
  await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
  const passwords = { get: () => password, watch: async () => {} };
  await net.addNode("n1", 1, { families: [4], passwords: password === undefined ? undefined : passwords });
  await pollUntil(
    () => net.routes("n1", 4),
    (text) => text.includes("blackhole 192.168.1.0/26"),
  );
}
/** Adds a pod to the node, with the route that Felix writes. */
function addPod(net: RouterNetwork): void {
  net.ip("n1", "link add cali1 type veth peer name pod");
  for (const link of ["cali1", "pod"]) net.ip("n1", `link set ${link} up`);
  net.ip("n1", "route replace 192.168.1.2/32 dev cali1 scope link proto 80 metric 1024");
}
const routeTo = (net: RouterNetwork, address: string) => net.ip("n1", `route get ${address}`).split("\n")[0];
const protocolOf = (net: RouterNetwork, name: string) =>
  Bun.spawnSync(["birdc", "-s", join(net.folder, `${name}.ctl`), "show", "protocols", "all", "node"]).stdout.toString();
/** Announced last in each test: when it is in the kernel, earlier routes of the peer have been handled. */
const LAST = "203.0.113.0/24";

for (const as of [65100, 64512])
  for (const isPodFirst of [true, false])
    test.concurrent(`a peer of AS ${as} that announces a pod's address ${isPodFirst ? "after" : "before"} the pod starts, or the node's own block, does not get their packets`, async () => {
      await using net = await RouterNetwork.create();
      await makeNode(net);
      if (isPodFirst) addPod(net);
      await net.put("BGPPeer", "tor", { peerIP: "10.77.0.254", asNumber: as });
      startRouter(net, "tor", 254, ["192.168.1.2/32", "192.168.1.0/26", "192.168.0.0/16", LAST], { as });
      await pollUntil(
        () => net.routes("n1", 4),
        (text) => text.includes(`${LAST} via 10.77.0.254`),
      );
      if (!isPodFirst) addPod(net);
      expect(routeTo(net, "192.168.1.2")).toContain("192.168.1.2 dev cali1");
      expect(net.routes("n1", 4)).toContain("blackhole 192.168.1.0/26");
      expect(net.routes("n1", 4)).not.toContain("192.168.1.0/26 via");
    }, 60_000);

test.concurrent("a BGPFilter keeps a peer's default route and its routes into the pools out of the kernel", async () => {
  await using net = await RouterNetwork.create();
  await makeNode(net);
  await net.put("BGPFilter", "only-theirs", {
    importV4: [
      { action: "Accept", matchOperator: "In", cidr: "203.0.113.0/24" },
      { action: "Reject", matchOperator: "In", cidr: "0.0.0.0/0" },
    ],
  });
  await net.put("BGPPeer", "tor", { peerIP: "10.77.0.254", asNumber: 65100, filters: ["only-theirs"] });
  startRouter(net, "tor", 254, ["0.0.0.0/0", "192.168.2.0/26", LAST]);
  await pollUntil(
    () => net.routes("n1", 4),
    (text) => text.includes(`${LAST} via 10.77.0.254`),
  );
  expect(net.routes("n1", 4)).not.toMatch(/^(default|0\.0\.0\.0\/0|192\.168\.2\.0\/26) via/m);
}, 60_000);

test.concurrent("a BGP speaker that is not a peer gets no session and no route into the kernel", async () => {
  await using net = await RouterNetwork.create();
  await makeNode(net);
  await net.put("BGPPeer", "tor", { peerIP: "10.77.0.254", asNumber: 65100 });
  startRouter(net, "stranger", 66, ["198.51.100.0/24"]);
  startRouter(net, "tor", 254, [LAST]);
  await pollUntil(
    () => net.established("n1", 4),
    (peers) => peers.includes("10.77.0.254"),
  );
  await pollUntil(
    () => protocolOf(net, "stranger"),
    (text) => text.includes("Last error:") && !text.includes("Established"),
  );
  expect(await net.established("n1", 4)).toEqual(["10.77.0.254"]);
  expect(net.routes("n1", 4)).not.toContain("198.51.100.0/24");
}, 60_000);

test.concurrent("a speaker at a peer's address without the peer's password gets no session", async () => {
  await using net = await RouterNetwork.create();
  const password = { secretKeyRef: { name: "bgp", key: "ours" } };
  await net.put("BGPPeer", "tor", { peerIP: "10.77.0.254", asNumber: 65100, password });
  await net.put("BGPPeer", "other", { peerIP: "10.77.0.253", asNumber: 65100, password });
  await makeNode(net, "secret");
  startRouter(net, "fake", 254, ["198.51.100.0/24"]);
  startRouter(net, "other", 253, [LAST], { password: 'password "secret";' });
  await pollUntil(
    () => net.established("n1", 4),
    (peers) => peers.includes("10.77.0.253"),
  );
  expect(await net.established("n1", 4)).toEqual(["10.77.0.253"]);
  expect(protocolOf(net, "fake")).not.toContain("Established");
  expect(net.routes("n1", 4)).not.toContain("198.51.100.0/24");
}, 60_000);
