// Tests `calico-node -uninstall` on a host with rules of both backends, interfaces of pods, tunnels and routes: it removes
// everything that belongs to Calico and nothing else. The datastore is kept without --purge.
import { expect, test } from "bun:test";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname } from "node:path";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { SupervisorState } from "../../../src/node/supervisor/supervisor.ts";
import { CALICOCTL, canRun, NODE, TestHost } from "./host.ts";

const FOREIGN = [
  "ip link add eth0 type veth peer name eth0p",
  "ip link set eth0p up",
  "ip addr add 192.0.2.11/24 dev eth0",
  "ip link set eth0 up",
  "ip link add calendar type bridge", // starts like Calico's interfaces, but is of another kind
  "ip link add vxlan7 type vxlan id 7 dstport 4790 dev eth0",
  "ip route add 203.0.113.0/24 via 192.0.2.1 proto static",
  "ip route add 203.0.114.0/24 via 192.0.2.1 proto 81",
  "ip rule add fwmark 0x1/0x1 lookup 100 priority 99", // not a mark of Calico
  "nft add table ip other",
  "nft add table arp other",
  "nft add chain ip other c",
  "nft add rule ip other c counter",
  "iptables-legacy -N OTHER",
  "iptables-legacy -A FORWARD -j OTHER",
  "ipset create other hash:ip",
  "mkdir -p /etc/cni/net.d /opt/cni/bin",
  "mount -t tmpfs none /etc/cni/net.d",
  "mount -t tmpfs none /opt/cni/bin",
  "echo '{}' > /etc/cni/net.d/99-other.conf",
  "touch /opt/cni/bin/portmap",
];
const OURS = [
  "ip link add cali0123456789a type veth peer name inner",
  "ip link set cali0123456789a up",
  "ip route add 10.9.0.5 dev cali0123456789a proto 80",
  "ip route add blackhole 10.9.0.0/26 proto bird",
  "ip route add 10.9.1.0/26 via 192.0.2.12 proto bird",
  "iptables-legacy -N cali-FORWARD",
  "iptables-legacy -I FORWARD -m comment --comment cali:wUHhoiAYhphO9Mso -j cali-FORWARD",
  "ipset create cali40s:abc hash:net",
  "iptables-legacy -A cali-FORWARD -m set --match-set cali40s:abc src -j DROP",
  "nft add table arp calico-arp",
  "nft list table inet calico-guard",
  "iptables-nft -N cali-INPUT",
  "iptables-nft -A INPUT -j cali-INPUT",
  `echo '{"plugins":[{"type":"calico"}]}' > /etc/cni/net.d/10-calico.conflist`,
  "touch /etc/cni/net.d/calico-kubeconfig /opt/cni/bin/calico /opt/cni/bin/calico-ipam",
];
const ENV = {
  DATASTORE_TYPE: "sqlite",
  NODENAME: "n1",
  CALICO_IPV4POOL_IPIP: "Never",
  CALICO_IPV4POOL_VXLAN: "Always",
  CALICO_NETWORKING_BACKEND: "vxlan",
  FELIX_HEALTHENABLED: "true",
  CALICO_DISABLE_FILE_LOGGING: "true",
};

/** The visible state of the host, without counters, and without tables that tools create when they read. */
function look(host: TestHost): Record<string, string> {
  const see = (command: string) =>
    host
      .run(["sh", "-c", command])
      .out.replaceAll(/\[\d+:\d+\]|packets \d+ bytes \d+|^#.*$/gm, "")
      .replaceAll(/^\s+$/gm, "");
  return {
    links: see("ip -o link | sed -E 's/^[0-9]+: //; s/@.*//; s/:.*//' | sort"),
    addresses: see("ip -4 -o addr | awk '{print $2, $4}' | sort"),
    routes: see("ip route show table all | grep -v 'proto kernel' | sort"),
    rules: see("ip rule"),
    nft: see("nft list tables | grep -v -E ' (filter|nat|mangle|raw)$'"),
    legacy: see("iptables-legacy-save -t filter"),
    viaNft: see("iptables-nft-save | grep cali"),
    sets: see("ipset list -n"),
    cni: see("ls /etc/cni/net.d /opt/cni/bin"),
    state: see("ls -A /var/lib/calico /var/run/calico"),
  };
}

/** What `ls -A` prints of the two state folders. */
const stateListing = (lib: readonly string[], run: readonly string[]): string =>
  `${["/var/lib/calico:", ...lib, "", "/var/run/calico:", ...run].join("\n")}\n`;

/** Paths that the log lists as kept, sorted. */
const keptIn = (log: string): string[] =>
  [...log.matchAll(/kept .*path="([^"]*)"/g)].map(([, path = ""]) => path).sort();

test.skipIf(!canRun)("TC-I01 uninstalling restores the state before the node ran", async () => {
  await using host = await TestHost.create(FOREIGN);
  const before = look(host);
  const node = host.start([NODE], ENV);
  await eventually(() => host.run([NODE, "-felix-ready"], ENV).code === 0, 30_000, "Felix ready");
  for (const command of OURS)
    expect({ command, ...host.run(["sh", "-c", command]) }).toMatchObject({ command, code: 0 });
  expect(host.run(["nft", "list", "tables"]).out).toContain("calico");
  expect(host.run(["ip", "link"]).out).toContain("vxlan.calico");

  const refused = host.run([NODE, "-uninstall"]);
  expect(refused.code).toBe(1);
  expect(refused.out + refused.err).toContain("still runs on this host");
  expect(host.run(["nft", "list", "tables"]).out).toContain("calico"); // nothing was changed

  const ended = new Promise((resolve) => node.child.once("exit", resolve));
  node.child.kill("SIGTERM");
  await ended;
  const { code, out, err } = host.run([NODE, "-uninstall"]);
  expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
  const datastore = ["calico.db", "calico.db-changed"];
  const withDatastore = { ...before, state: stateListing(datastore, []) };
  expect(look(host)).toEqual(withDatastore);
  expect(keptIn(out)).toEqual(datastore.map((name) => `/var/lib/calico/${name}`));
  expect(host.run([NODE, "-uninstall"]).code).toBe(0); // can be repeated
  expect(look(host)).toEqual(withDatastore);
  const purged = host.run([NODE, "-uninstall", "--purge"]);
  expect(purged.code).toBe(0);
  expect(purged.out).toContain("/var/lib/calico/calico.db");
  expect(keptIn(purged.out)).toEqual([]);
  expect(look(host)).toEqual(before);
});

const WITH_BIRD = { ...ENV, CALICO_IPV4POOL_VXLAN: "Never", CALICO_NETWORKING_BACKEND: "bird" };
const ROUTES_OF_BIRD = ["ip", "route", "show", "proto", "bird"];
const ADD = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/c1",
  CNI_IFNAME: "eth0",
  CNI_PATH: dirname(NODE),
};
const NETWORK = `{"cniVersion": "0.3.1", "name": "pods", "type": "calico", "nodename": "n1", "datastore_type": "sqlite", "ipam": {"type": "calico-ipam"}}`;

/** Starts a node with BIRD, waits for BIRD's first route, and kills only calico-node. Returns the remaining children. */
async function startAndKill(host: TestHost) {
  const node = host.start([NODE], WITH_BIRD);
  const read = () => JSON.parse(host.read("/var/run/calico/supervisor.json") || "null") as SupervisorState | null;
  const areRunning = () => read()?.children.every(({ state }) => state === "running") ?? false;
  await eventually(areRunning, 30_000, "all parts");
  const { code, out } = host.run(["sh", "-c", `echo '${NETWORK}' | ${dirname(NODE)}/calico-ipam`], ADD);
  expect({ code, out: code === 0 ? "" : out }).toEqual({ code: 0, out: "" }); // the node now has a block
  await eventually(() => host.run(ROUTES_OF_BIRD).out.includes("blackhole"), 30_000, "a route of BIRD");
  // Felix keeps running, and creates these folders after its first apply.
  const folders = ["endpoint-status", "programmed"].map((name) => `/var/run/calico/${name}`);
  await eventually(() => host.run(["ls", ...folders]).code === 0, 30_000, "the folders of Felix");
  const state = read();
  if (state === null) throw new Error("supervisor.json does not exist");
  const ended = new Promise((resolve) => node.child.once("exit", resolve));
  process.kill(state.pid, "SIGKILL");
  await ended;
  return state.children.map(({ name, pid = 0 }) => ({ name, pid }));
}

/** A process that has exited may be a zombie; its command line is then empty. */
const isAlive = ({ pid }: { readonly pid: number }) =>
  existsSync(`/proc/${pid}/cmdline`) && readFileSync(`/proc/${pid}/cmdline`, "utf8") !== "";

test.skipIf(!canRun)("-uninstall stops the children of a killed calico-node before it removes routes", async () => {
  await using host = await TestHost.create(FOREIGN);
  const before = look(host);
  const left = await startAndKill(host);
  expect(left.map(({ name }) => name)).toEqual(["felix", "confd", "bird", "bird6"]);
  expect(left.filter(isAlive)).toEqual(left); // otherwise this test would prove nothing
  const { code, out } = host.run([NODE, "-uninstall", "--purge"]);
  expect({ code, out: code === 0 ? "" : out }).toEqual({ code: 0, out: "" });
  expect(left.filter(isAlive)).toEqual([]);
  expect(look(host)).toEqual(before);
});

test.skipIf(!canRun)(
  "-uninstall fails and changes nothing while a BIRD of Calico with an unknown pid runs",
  async () => {
    await using host = await TestHost.create(FOREIGN);
    const left = await startAndKill(host);
    expect(host.run(["rm", "/var/run/calico/supervisor.json"]).code).toBe(0);
    const before = look(host);
    const { code, out, err } = host.run([NODE, "-uninstall"]);
    expect({ code, output: out + err }).toEqual({
      code: 1,
      output: expect.stringContaining("/var/run/calico/bird.ctl"),
    });
    expect(left.filter(isAlive)).toEqual(left);
    expect(look(host)).toEqual(before);
  },
);

const CALICO_DB = "/var/lib/calico/calico.db";
const RUN = `${realpathSync("/var/run")}/calico`; // /var/run is usually a link to /run
const SHARED_DB = "/var/lib/calico/datastore/calico.db";

test.skipIf(!canRun)("-uninstall keeps every datastore and does not cross mount points", async () => {
  await using host = await TestHost.create([
    // One file system holds both, so that the bind mount on /var/lib/calico/volume has the st_dev of its parent.
    "mkdir -p /var/log/calico/state /var/log/calico/volume /var/log/calico/shared",
    "mount --bind /var/log/calico/state /var/lib/calico",
    "mkdir -p /var/lib/calico/datastore /var/lib/calico/volume /var/lib/calico/deep /var/run/calico/cgroup /var/run/calico/bgp",
    "mount --bind /var/log/calico/shared /var/lib/calico/datastore",
    "mount --bind /var/log/calico/volume /var/lib/calico/volume",
    "mount -t tmpfs none /var/run/calico/cgroup",
    "touch /var/lib/calico/deep/file /var/lib/calico/nodename '/var/lib/calico/bound file' /var/run/calico/bgp/x",
    "touch /var/log/calico/outside /var/lib/calico/volume/data /var/run/calico/cgroup/member",
    "mount --bind /var/log/calico/outside '/var/lib/calico/bound file'",
    "ln -s /var/log/calico /var/lib/calico/link",
  ]);
  const pool = (name: string) =>
    `echo '{"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "${name}"}, "spec": {"cidr": "10.0.0.0/16"}}'`;
  const make = (path: string) =>
    host.run(["sh", "-c", `${pool("p")} | ${CALICOCTL} apply -f -`], {
      DATASTORE_TYPE: "sqlite",
      CALICO_SQLITE_PATH: path,
    });
  for (const path of [CALICO_DB, SHARED_DB, "/var/lib/calico/old/copy"]) expect(make(path)).toMatchObject({ code: 0 });
  const readPools = (path: string) =>
    host.run([CALICOCTL, "get", "ippools"], { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: path }).out;
  const survivors = () => host.run(["find", "/var/lib/calico", RUN, "-mindepth", "1"]).out.split("\n").sort();

  const env = { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: SHARED_DB };
  const { code, out } = host.run([NODE, "-uninstall"], env);
  expect({ code, out: code === 0 ? "" : out }).toEqual({ code: 0, out: "" });
  for (const path of [CALICO_DB, SHARED_DB, "/var/lib/calico/old/copy"])
    expect([path, readPools(path)]).toEqual([path, expect.stringContaining("10.0.0.0/16")]);
  const others = ["/var/run/calico/cgroup/member", "/var/lib/calico/volume/data", "/var/log/calico/outside"];
  expect(host.run(["ls", ...others])).toMatchObject({ code: 0, err: "" });
  const mounts = ["/var/lib/calico/bound file", "/var/lib/calico/datastore", "/var/lib/calico/volume", `${RUN}/cgroup`];
  const found = survivors();
  for (const gone of ["/var/lib/calico/deep", "/var/lib/calico/link", `${RUN}/bgp`, "/var/lib/calico/nodename"])
    expect(found).not.toContain(gone);
  expect(keptIn(out)).toEqual(expect.arrayContaining([...mounts, CALICO_DB, "/var/lib/calico/old/copy"]));

  const purged = host.run([NODE, "-uninstall", "--purge"], env);
  expect({ code: purged.code, out: purged.code === 0 ? "" : purged.out }).toEqual({ code: 0, out: "" });
  expect(readPools(SHARED_DB)).toContain("10.0.0.0/16"); // behind a mount point
  expect(host.run(["ls", ...others])).toMatchObject({ code: 0, err: "" });
  const shared = host
    .run(["sh", "-c", `ls ${SHARED_DB}*`])
    .out.trim()
    .split("\n");
  expect(keptIn(purged.out)).toEqual([...mounts, ...shared].sort());
  const left = survivors().filter(
    (path) => path !== "" && !mounts.some((mount) => path === mount || path.startsWith(`${mount}/`)),
  );
  expect(left).toEqual([]);
});

test.skipIf(!canRun)(
  "-uninstall deletes state files on an overlay, where they have another st_dev than their folder",
  async () => {
    await using host = await TestHost.create([
      "mkdir -p /var/log/calico/lower /var/log/calico/upper",
      "mount -t tmpfs none /var/log/calico/lower",
      "mount -t tmpfs none /var/log/calico/upper",
      "mkdir /var/log/calico/upper/data /var/log/calico/upper/work",
      "mount -t overlay overlay -o lowerdir=/var/log/calico/lower,upperdir=/var/log/calico/upper/data,workdir=/var/log/calico/upper/work /var/lib/calico",
      "echo node1 > /var/lib/calico/nodename",
      "mkdir /var/lib/calico/bgp",
      "echo 1 > /var/lib/calico/bgp/state",
    ]);
    const devices = host
      .run(["stat", "-c", "%d", "/var/lib/calico", "/var/lib/calico/nodename"])
      .out.trim()
      .split("\n");
    expect(devices[0]).not.toBe(devices[1]); // otherwise this test would prove nothing
    const { code, out } = host.run([NODE, "-uninstall"]);
    expect({ code, kept: keptIn(out) }).toEqual({ code: 0, kept: [] });
    expect(host.run(["ls", "-A", "/var/lib/calico"]).out).toBe("");
  },
);
