// Creates faults on a host of a lab, and tests that doctor reports each one, and nothing after the fault is repaired.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import type { Finding } from "../../../src/calicoctl/doctor/finding.ts";
import { down } from "../../../src/lab/down.ts";
import { breakLab, healLab } from "../../../src/lab/faults.ts";
import type { Lab } from "../../../src/lab/lab.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../../src/lab/options.ts";
import { datastoreEnvironment, rolePath } from "../../../src/lab/programs.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";
import { up } from "../../../src/lab/up.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION } from "../../../src/model/index.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: this builds network namespaces");
const quiet = openTerminal({ quiet: true });
const options: LabOptions = { ...DEFAULT_OPTIONS, name: "testfaults", nodes: 2, podsPerNode: 1 };
let lab: Lab;

beforeAll(async () => {
  lab = await up(options, quiet);
}, 90_000);
afterAll(() => down(options.name, quiet), 30_000);

function run(...command: string[]): string {
  const { code, stdout, stderr } = lab.host("node1").run(command, {
    environment: datastoreEnvironment(lab.options, lab.plan),
  });
  if (code !== 0 && code !== 3) throw new Error(`${command.join(" ")}: ${stderr}`);
  return stdout;
}

function doctor(): readonly Finding[] {
  const { findings } = JSON.parse(run(rolePath("calicoctl"), "doctor", "-o", "json")) as {
    readonly findings: readonly Finding[];
  };
  return findings;
}

const felix = (): string => {
  const { children } = JSON.parse(run("cat", "/var/run/calico/supervisor.json")) as {
    readonly children: readonly { readonly name: string; readonly pid: number }[];
  };
  return String(children.find(({ name }) => name === "felix")?.pid);
};
const patch = (spec: object) =>
  run(rolePath("calicoctl"), "patch", "ippool", "default-ipv4-ippool", "-p", JSON.stringify({ spec }));

/** The block of node2's pods, from the route that BIRD added on node1. */
const blockOfNode2 = (): string => {
  const [block] = run("ip", "route", "show", "proto", "bird").split(/\s/);
  if (block === undefined || block === "") throw new Error("node1 has no route from BIRD");
  return block;
};
const addressOf = (node: string): string => {
  const { interfaces } = lab.plan.nodes.find(({ name }) => name === node) ?? { interfaces: [] };
  return interfaces[0]?.addresses[0]?.split("/")[0] ?? "";
};
/** An address of node1's first block that no pod has. */
const unusedAddressOfNode1 = (): string => {
  const [own] = lab.record.pods.filter(({ node }) => node === "node1").flatMap(({ addresses }) => addresses);
  const [prefix, last] = /^(.*\.)(\d+)$/.exec(own ?? "")?.slice(1) ?? [];
  if (prefix === undefined) throw new Error("node1 has no pod");
  return `${prefix}${(Number(last) & ~63) + 60}`;
};
/** Inserts an established connection into node1's conntrack table. */
const track = (source: string, destination: string) =>
  run(
    ...["conntrack", "-I", "-p", "udp", "-t", "600", "-s", source, "-d", destination],
    ...["--sport", "45000", "--dport", "53", "-u", "SEEN_REPLY"],
  );
let block = "";
let defaultRoute: readonly string[] = [];

const FAULTS: readonly {
  name: string;
  id: string;
  problem: RegExp;
  create: () => void;
  repair: () => unknown;
}[] = [
  {
    name: "a table of another program drops forwarded packets",
    id: "foreign-filter",
    problem: /table inet fw, chain f.*drops forwarded packets/,
    create: () =>
      run("nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 0; policy drop; }"),
    repair: () => run("nft", "delete table inet fw"),
  },
  {
    name: "the policy of iptables' FORWARD chain is DROP, as set by Docker",
    id: "foreign-filter",
    problem: /table ip filter, chain FORWARD.*drops forwarded packets/,
    create: () => run("iptables-nft", "-P", "FORWARD", "DROP"),
    repair: () => run("iptables-nft", "-P", "FORWARD", "ACCEPT"),
  },
  {
    name: "a firewall drops BGP",
    id: "foreign-filter",
    problem: /drops BGP \(tcp port 179\)/,
    create: () =>
      run(
        "nft",
        "add table inet fw; add chain inet fw i { type filter hook input priority 0; }; add rule inet fw i tcp dport 179 counter drop",
      ),
    repair: () => run("nft", "delete table inet fw"),
  },
  {
    name: "the only pool is disabled",
    id: "no-pool-for-node",
    problem: /no IPv4 pool provides addresses for pods on node1 and node2/,
    create: () => patch({ disabled: true }),
    repair: () => patch({ disabled: false }),
  },
  {
    name: "blocks are not announced",
    id: "no-route-to-block",
    problem: /node1 has no route to 1 block of pool default-ipv4-ippool on node2/,
    create: () => patch({ disableBGPExport: true }),
    repair: () => patch({ disableBGPExport: false }),
  },
  ...(["blackhole", "prohibit", "unreachable", "throw"] as const).map((type) => ({
    name: `a ${type} route hides the block of another node`,
    id: "no-route-to-block",
    problem: new RegExp(`node1 rejects packets to 10\\.65\\..*/26 of node2: a route of type ${type}`),
    create: () => {
      block = blockOfNode2();
      run("ip", "route", "add", type, block);
    },
    repair: () => run("ip", "route", "del", type, block),
  })),
  {
    name: "forwarding is off",
    id: "sysctl",
    problem: /net\.ipv4\.ip_forward is 0 on node1/,
    create: () => run("sysctl", "-w", "net.ipv4.ip_forward=0"),
    repair: () => run("sysctl", "-w", "net.ipv4.ip_forward=1"),
  },
  {
    name: "the path to another node has a small MTU",
    id: "mtu",
    problem: /has MTU 1500, but the path to other nodes allows 1300/,
    create: () => run("ip", "route", "add", `${addressOf("node2")}/32`, "dev", "eth0", "mtu", "1300"),
    repair: () => run("ip", "route", "del", `${addressOf("node2")}/32`),
  },
  {
    name: "two Nodes have the same address",
    id: "duplicate-address",
    problem: /nodes copy and node2 both have the address/,
    create: () =>
      lab.apply([
        {
          apiVersion: API_VERSION,
          kind: "Node",
          metadata: { name: "copy" },
          spec: { bgp: { ipv4Address: `${addressOf("node2")}/24` } },
        },
      ]),
    repair: () => run(rolePath("calicoctl"), "delete", "node", "copy"),
  },
  {
    name: "a pool overlaps the nodes' network",
    id: "pool-holds-node-addresses",
    problem: /overlap/,
    create: () =>
      lab.apply([
        {
          apiVersion: API_VERSION,
          kind: "IPPool",
          metadata: { name: "overlap" },
          spec: { cidr: "10.77.0.0/16", nodeSelector: "has(nothing)" },
        },
      ]),
    repair: () => run(rolePath("calicoctl"), "delete", "ippool", "overlap"),
  },
  {
    name: "eth0 has no carrier",
    id: "link-down",
    problem: /eth0 on node1 has no carrier/,
    create: () => breakLab(lab, ["link", "node1"]),
    repair: () => healLab(lab),
  },
  {
    name: "eth0 is administratively down",
    id: "link-down",
    problem: /eth0 on node1 is administratively down/,
    create: () => {
      defaultRoute = run("ip", "route", "show", "default").trim().split(/\s+/);
      run("ip", "link", "set", "eth0", "down"); // this also deletes its routes
    },
    repair: () => {
      run("ip", "link", "set", "eth0", "up");
      run("ip", "route", "add", ...defaultRoute);
    },
  },
  {
    name: "connections of a removed pod remain in conntrack",
    id: "stale-connections",
    problem: /^node1 tracks 2 connections of 1 address of its blocks that no pod has/,
    create: () => {
      const address = unusedAddressOfNode1();
      // One connection from the removed pod, and one to it.
      track(address, addressOf("node2"));
      track(addressOf("node2"), address);
    },
    // Runs the command of the finding.
    repair: () => {
      const fix = doctor().find(({ id }) => id === "stale-connections")?.fix ?? "false";
      run("sh", "-c", fix.replace(/ \(package.*/, ""));
    },
  },
  {
    name: "an older agent did not program rules for IPv6",
    id: "ipv6-without-rules",
    problem: /no rules apply to IPv6 packets of workloads on node1/,
    // A running agent of this version would add the table again.
    create: () => {
      run("kill", "-STOP", felix());
      run("nft", "delete", "table", "inet", "calico-guard");
    },
    repair: () => run("kill", "-CONT", felix()),
  },
  {
    name: "the agent is stopped",
    id: "part-not-running",
    problem: /felix is running but does nothing on node1/,
    create: () => run("kill", "-STOP", felix()),
    repair: () => run("kill", "-CONT", felix()),
  },
];

test("a lab without faults has no findings", async () => {
  await eventually(() => doctor().length === 0);
}, 30_000);

test("calicoctl version prints the version of the cluster's nodes", () => {
  const [, client, cluster] =
    /^Client Version: +(\S+)$[^]*^Cluster Version: +(.*)$/m.exec(run(rolePath("calicoctl"), "version")) ?? [];
  expect(cluster).toMatch(/^v\d/);
  expect(cluster).toBe(client);
});

for (const { name, id, problem, create, repair } of FAULTS)
  test(name, async () => {
    create();
    try {
      const found = await eventually(() => doctor().find((each) => each.id === id));
      expect(found.problem).toMatch(problem);
    } finally {
      await repair();
    }
    await eventually(() => doctor().length === 0, 30_000, "no findings after the repair");
  }, 60_000);

test("connections of pods, of the node and of addresses outside this node's blocks give no finding", () => {
  const [own = "", other = ""] = lab.record.pods.map(({ addresses }) => addresses[0]);
  track(own, other);
  track(other, addressOf("node1"));
  track("10.65.255.1", "10.65.255.2");
  try {
    expect(doctor()).toEqual([]);
  } finally {
    run("conntrack", "-D", "-p", "udp", "--orig-port-src", "45000");
  }
});

test("a Node that was deleted: the agent warns, its readiness page shows it, and doctor names it", async () => {
  run(rolePath("calicoctl"), "delete", "node", "node1");
  const found = await eventually(() => doctor().find(({ id }) => id === "node-not-in-datastore"));
  expect(found).toMatchObject({ severity: "error", node: "node1" });
  expect(found.problem).toBe("this host is node node1, but the datastore has no Node node1");
  const page = await eventually(() => {
    // Felix restarts because its settings for this node are deleted with the Node; meanwhile the page is not served.
    const { stdout } = lab.host("node1").run(["curl", "-s", "-w", "%{http_code}", "http://127.0.0.1:9099/readiness"]);
    return stdout.includes("Node node1 is not in the datastore") && stdout.endsWith("200") && stdout;
  });
  expect(page).toMatch(/^\| Node .*\| - +\| - +\| Node node1 is not in the datastore +\|$/m);
  const log = () => readFileSync(lab.folder.log("node1-calico-node"), "utf8");
  await eventually(() => /WARN.*the datastore has no Node for this host/.test(log()), 10_000, "the warning in the log");
  expect(run(rolePath("calicoctl"), "doctor")).toContain(
    "Examined: the datastore (1 node). Not examined: this host (the datastore has no Node node1), host node2.",
  );
}, 60_000);
