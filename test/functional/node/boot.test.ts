// Tests the first seconds of a node, in which calico-node serves CNI requests before Felix has written its first rules.
import { expect, test } from "bun:test";
import { join } from "node:path";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { CALICOCTL, canRun, NODE, TestHost } from "./host.ts";

const PLUGIN = join(NODE, "../calico");
const ETH0 = [
  "ip link add eth0 type veth peer name eth0p",
  "ip link set eth0p up",
  "ip addr add 192.0.2.11/24 dev eth0",
  "ip link set eth0 up",
  "mkdir -p /run/netns",
  "mount -t tmpfs none /run/netns",
  "ip netns add pod",
];
const ENV = {
  DATASTORE_TYPE: "sqlite",
  NODENAME: "n1",
  IP: "autodetect",
  CALICO_NETWORKING_BACKEND: "vxlan",
  CALICO_IPV4POOL_IPIP: "Never",
  CALICO_IPV6POOL_CIDR: "none",
  CALICO_DISABLE_FILE_LOGGING: "true",
  FELIX_HEALTHENABLED: "true",
  FELIX_DEBUGSIMULATEDATAPLANEAPPLYDELAY: "3", // seconds before each apply
};
const CONF = {
  cniVersion: "1.0.0",
  name: "pods",
  type: "calico",
  datastore_type: "sqlite",
  ipam: { type: "calico-ipam" },
  policy_setup_timeout_seconds: 0,
  log_level: "error",
};

const guardOf = (host: TestHost): "absent" | "closed" | "normal" => {
  const { code, out } = host.run(["nft", "list", "table", "inet", "calico-guard"]);
  return code !== 0 ? "absent" : out.includes("cali:closed;") ? "closed" : "normal";
};

/** Starts the node and attaches a pod as soon as the node accepts requests. */
async function attachEarly(host: TestHost, env: Readonly<Record<string, string>> = ENV): Promise<void> {
  host.start([NODE], env);
  const cni = {
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c1",
    CNI_NETNS: "/run/netns/pod",
    CNI_IFNAME: "eth0",
    CNI_PATH: join(NODE, ".."),
  };
  const add = ["sh", "-c", `printf '%s' "$0" | exec ${PLUGIN}`, JSON.stringify(CONF)];
  await eventually(() => host.run(add, cni).code === 0, 30_000, "ADD"); // fails before the nodename file and the Node exist
}

/** Findings of `calicoctl doctor` about the guard table. */
function findings(host: TestHost): string[] {
  const { findings: found } = JSON.parse(host.run([CALICOCTL, "doctor", "-o", "json"], ENV).out) as {
    findings: { readonly id: string }[];
  };
  return found.map(({ id }) => id).filter((id) => ["workloads-closed", "ipv6-without-rules"].includes(id));
}

const untilReady = (host: TestHost) =>
  eventually(() => host.run([NODE, "-felix-ready"], ENV).code === 0, 30_000, "Felix ready");

test.skipIf(!canRun)("packets of a pod that starts on a new node are dropped until Felix's first apply", async () => {
  await using host = await TestHost.create(ETH0);
  await attachEarly(host);
  expect(guardOf(host)).toBe("closed");
  expect(findings(host)).toEqual(["workloads-closed"]);
  await untilReady(host);
  expect(guardOf(host)).toBe("normal");
  expect(findings(host)).toEqual([]);
});

test.skipIf(!canRun)("doctor reports missing IPv6 rules, as left by older agents", async () => {
  await using host = await TestHost.create(ETH0);
  const env = { ...ENV, FELIX_IPV6SUPPORT: "false", FELIX_DEBUGSIMULATEDATAPLANEAPPLYDELAY: "0" };
  const { child } = host.start([NODE], env);
  await untilReady(host);
  expect(findings(host)).toEqual([]);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await ended;
  expect(host.run(["nft", "delete", "table", "inet", "calico-guard"]).code).toBe(0);
  expect(findings(host)).toEqual(["ipv6-without-rules"]);
});

test.skipIf(!canRun)("after an upgrade from an agent without a guard table, no packets are dropped", async () => {
  const RULES = {
    nftables: [
      "nft add table ip calico",
      "nft 'add chain ip calico filter-FORWARD { type filter hook forward priority 0; }'",
    ],
    legacy: ["iptables-legacy -N cali-FORWARD", "iptables-legacy -I FORWARD -j cali-FORWARD"],
    nft: ["iptables-nft -N cali-FORWARD", "iptables-nft -I FORWARD -j cali-FORWARD"],
  };
  for (const [backend, commands] of Object.entries(RULES)) {
    await using host = await TestHost.create([...ETH0, ...commands]);
    await attachEarly(host);
    expect({ backend, guard: guardOf(host) }).toEqual({ backend, guard: "absent" });
    await untilReady(host);
    expect({ backend, guard: guardOf(host) }).toEqual({ backend, guard: "normal" });
  }
});

test.skipIf(!canRun)("on a node without Felix, no packets are dropped", async () => {
  await using host = await TestHost.create([...ETH0, "touch /var/lib/calico/guard"]);
  await attachEarly(host, { ...ENV, CALICO_DISABLE_FELIX: "true" });
  expect(guardOf(host)).toBe("absent");
  expect(host.run(["ls", "/var/lib/calico/guard"]).code).not.toBe(0);
});
