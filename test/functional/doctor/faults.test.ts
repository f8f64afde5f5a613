// Faults made on purpose on a host of a lab: doctor tells each one's cause, and nothing once it is mended.
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

/** The block of node2's pods, as BIRD wrote its route on node1. */
const blockOfNode2 = (): string => {
  const [block] = run("ip", "route", "show", "proto", "bird").split(/\s/);
  if (block === undefined || block === "") throw new Error("node1 has no route by BIRD");
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
  says: RegExp;
  make: () => void;
  mend: () => unknown;
}[] = [
  {
    name: "a foreign table drops what is forwarded",
    id: "foreign-filter",
    says: /table inet fw, chain f.*drops forwarded packets/,
    make: () =>
      run("nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 0; policy drop; }"),
    mend: () => run("nft", "delete table inet fw"),
  },
  {
    name: "iptables' FORWARD is DROP, as Docker leaves it",
    id: "foreign-filter",
    says: /table ip filter, chain FORWARD.*drops forwarded packets/,
    make: () => run("iptables-nft", "-P", "FORWARD", "DROP"),
    mend: () => run("iptables-nft", "-P", "FORWARD", "ACCEPT"),
  },
  {
    name: "a firewall drops BGP",
    id: "foreign-filter",
    says: /drops BGP \(tcp port 179\)/,
    make: () =>
      run(
        "nft",
        "add table inet fw; add chain inet fw i { type filter hook input priority 0; }; add rule inet fw i tcp dport 179 counter drop",
      ),
    mend: () => run("nft", "delete table inet fw"),
  },
  {
    name: "the only pool is disabled",
    id: "no-pool-for-node",
    says: /no IPv4 pool gives addresses to pods on node1 and node2/,
    make: () => patch({ disabled: true }),
    mend: () => patch({ disabled: false }),
  },
  {
    name: "blocks are told to nobody",
    id: "no-route-to-block",
    says: /node1 has no route to 1 block of pool default-ipv4-ippool on node2/,
    make: () => patch({ disableBGPExport: true }),
    mend: () => patch({ disableBGPExport: false }),
  },
  ...(["blackhole", "prohibit", "unreachable", "throw"] as const).map((type) => ({
    name: `a ${type} route hides the block of another node`,
    id: "no-route-to-block",
    says: new RegExp(`node1 rejects packets to 10\\.65\\..*/26 of node2: a route of type ${type}`),
    make: () => {
      block = blockOfNode2();
      run("ip", "route", "add", type, block);
    },
    mend: () => run("ip", "route", "del", type, block),
  })),
  {
    name: "forwarding is off",
    id: "sysctl",
    says: /net\.ipv4\.ip_forward is 0 on node1/,
    make: () => run("sysctl", "-w", "net.ipv4.ip_forward=0"),
    mend: () => run("sysctl", "-w", "net.ipv4.ip_forward=1"),
  },
  {
    name: "the path to another node has a small MTU",
    id: "mtu",
    says: /1500 bytes, of which the way to other nodes carries 1300/,
    make: () => run("ip", "route", "add", `${addressOf("node2")}/32`, "dev", "eth0", "mtu", "1300"),
    mend: () => run("ip", "route", "del", `${addressOf("node2")}/32`),
  },
  {
    name: "two Nodes have the same address",
    id: "duplicate-address",
    says: /nodes copy and node2 both carry/,
    make: () =>
      lab.apply([
        {
          apiVersion: API_VERSION,
          kind: "Node",
          metadata: { name: "copy" },
          spec: { bgp: { ipv4Address: `${addressOf("node2")}/24` } },
        },
      ]),
    mend: () => run(rolePath("calicoctl"), "delete", "node", "copy"),
  },
  {
    name: "a pool overlaps the nodes' network",
    id: "pool-holds-node-addresses",
    says: /overlap/,
    make: () =>
      lab.apply([
        {
          apiVersion: API_VERSION,
          kind: "IPPool",
          metadata: { name: "overlap" },
          spec: { cidr: "10.77.0.0/16", nodeSelector: "has(nothing)" },
        },
      ]),
    mend: () => run(rolePath("calicoctl"), "delete", "ippool", "overlap"),
  },
  {
    name: "the plug of eth0 is pulled",
    id: "link-down",
    says: /eth0 on node1 has no carrier/,
    make: () => breakLab(lab, ["link", "node1"]),
    mend: () => healLab(lab),
  },
  {
    name: "eth0 is administratively down",
    id: "link-down",
    says: /eth0 on node1 is administratively down/,
    make: () => {
      defaultRoute = run("ip", "route", "show", "default").trim().split(/\s+/);
      run("ip", "link", "set", "eth0", "down"); // and its routes go
    },
    mend: () => {
      run("ip", "link", "set", "eth0", "up");
      run("ip", "route", "add", ...defaultRoute);
    },
  },
  {
    name: "connections of a removed pod are left in conntrack",
    id: "stale-connections",
    says: /^node1 tracks 2 connections of 1 address of its blocks that no pod has/,
    make: () => {
      const address = unusedAddressOfNode1();
      // As left behind by an agent that did not delete them: one from the pod, and one to it.
      track(address, addressOf("node2"));
      track(addressOf("node2"), address);
    },
    // The command that doctor itself prints.
    mend: () => {
      const fix = doctor().find(({ id }) => id === "stale-connections")?.fix ?? "false";
      run("sh", "-c", fix.replace(/ \(package.*/, ""));
    },
  },
  {
    name: "an older agent left IPv6 without rules",
    id: "ipv6-without-rules",
    says: /no rules apply to IPv6 packets of workloads on node1/,
    // This version's agent would write the table again at once.
    make: () => {
      run("kill", "-STOP", felix());
      run("nft", "delete", "table", "inet", "calico-guard");
    },
    mend: () => run("kill", "-CONT", felix()),
  },
  {
    name: "the agent is stopped",
    id: "part-not-running",
    says: /felix runs and does nothing on node1/,
    make: () => run("kill", "-STOP", felix()),
    mend: () => run("kill", "-CONT", felix()),
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

for (const { name, id, says, make, mend } of FAULTS)
  test(name, async () => {
    make();
    try {
      const found = await eventually(() => doctor().find((each) => each.id === id));
      expect(found.problem).toMatch(says);
    } finally {
      await mend();
    }
    await eventually(() => doctor().length === 0, 30_000, "no findings after the fault is gone");
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
    // Felix restarts, because its settings for this node are deleted with the Node: then nobody answers.
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
