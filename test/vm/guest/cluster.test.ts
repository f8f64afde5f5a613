// Tests all encapsulations between two hosts on a switch, by capturing packets between them.
//
//   pod1 ─ node1 10.77.0.11 ── 10.77.0.12 node2 ─ pod2
//             fd00:77::b        fd00:77::c
import { afterAll, beforeAll, expect, test } from "bun:test";
import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { LabPod } from "../../../src/lab/folder.ts";
import { down } from "../../../src/lab/down.ts";
import { Lab } from "../../../src/lab/lab.ts";
import { podNamespace } from "../../../src/lab/pods.ts";
import { API_VERSION } from "../../../src/model/index.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";

const MINUTES = 60_000;
const options = { name: "vm" } as const;
const ADDRESS = { node1: "10.77.0.11", node2: "10.77.0.12" } as const;
const NODES = ["node1", "node2"] as const;
const TUNNELLED = "IP 10.77.0.11 > 10.77.0.12: IP 10.65";
let lab: Lab;

beforeAll(() => {
  const words = ["lab", "up", "--name", options.name, "--nodes", "2", "--pods", "1", "--ipv6"];
  const made = spawnSync(join(import.meta.dir, "../../../dist/calico"), words, {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (made.status !== 0) throw new Error("could not create the lab");
  lab = Lab.open(options.name);
}, 20 * MINUTES);
afterAll(() => down(options.name, openTerminal({ quiet: true })), 5 * MINUTES);

test(
  "without encapsulation, packets between the nodes are plain",
  async () => {
    await untilPings(4);
    await expectPackets(4, { sees: "ICMP echo request", neverSees: /: IP 10\.|UDP/ });
  },
  10 * MINUTES,
);

test(
  "FD-140 FD-141 IPIP Always: packets to the other node use the tunnel, through a route of Felix",
  async () => {
    patchPool({ ipipMode: "Always" });
    await untilRoute("node1", "pod2", /via 10\.77\.0\.12 dev tunl0 proto 80 .*mtu 1480/);
    await untilRoute("node2", "pod1", /via 10\.77\.0\.11 dev tunl0 proto 80 .*mtu 1480/);
    expect(ip("node1", "-4", "addr", "show", "tunl0")).toMatch(/inet 10\.65\.\d+\.\d+\/32/);
    await untilPings(4);
    await expectPackets(4, { sees: TUNNELLED, neverSees: /^\S+ IP 10\.65/ });
  },
  10 * MINUTES,
);

test(
  "FD-140 Felix restores the tunnel device if it is down or its address or MTU was changed",
  async () => {
    const before = ip("node1", "-4", "addr", "show", "tunl0");
    ip("node1", "link", "set", "tunl0", "mtu", "1400");
    ip("node1", "addr", "flush", "dev", "tunl0");
    ip("node1", "addr", "add", "192.0.2.55/32", "dev", "tunl0");
    ip("node1", "link", "set", "tunl0", "down");
    await eventually("the device is as it was", () => ip("node1", "-4", "addr", "show", "tunl0") === before);
    await untilRoute("node1", "pod2", /via 10\.77\.0\.12 dev tunl0 proto 80 .*mtu 1480/);
    await untilPings(4);
    await expectPackets(4, { sees: TUNNELLED, neverSees: /^\S+ IP 10\.65/ });
  },
  10 * MINUTES,
);

test(
  "FD-141 IPIP CrossSubnet: plain packets inside a subnet, tunnel between subnets",
  async () => {
    patchPool({ ipipMode: "CrossSubnet" });
    await untilRoute("node1", "pod2", /via 10\.77\.0\.12 dev eth0 proto 80/);
    await untilRoute("node2", "pod1", /via 10\.77\.0\.11 dev eth0 proto 80/);
    await untilPings(4);
    await expectPackets(4, { sees: "ICMP echo request", neverSees: /: IP 10\.65/ });
    // Puts the nodes into different subnets in the datastore, until the address monitor restores them, within a minute.
    const apart = () => setNodeSubnets(32);
    apart();
    await untilRoute("node1", "pod2", /via 10\.77\.0\.12 dev tunl0 proto 80/, apart);
    await untilRoute("node2", "pod1", /via 10\.77\.0\.11 dev tunl0 proto 80/, apart);
    await untilPings(4);
    await expectPackets(4, { sees: TUNNELLED, neverSees: /^\S+ IP 10\.65/ });
    setNodeSubnets(24);
  },
  15 * MINUTES,
);

test(
  "FD-150 FD-153 WireGuard: only encrypted UDP packets between the nodes",
  async () => {
    patchPool({ ipipMode: "Never" });
    patchFelix({ wireguardEnabled: true, wireguardKeepAlive: "5s" });
    await eventually("keys are published", () => nodeStatuses().every((s) => s.wireguardPublicKey !== undefined));
    await eventually("peers are set", () => NODES.every((node) => wg(node, "wireguard.cali").length === 1));
    for (const node of NODES)
      await eventually("routes lead there", () =>
        /^10\.65\.\S+ dev wireguard\.cali/m.test(ip(node, "-4", "route", "show", "table", "1")),
      );
    const rule = /99:\s+not from all fwmark 0x200000\/0x200000 lookup 1/;
    expect(ip("node1", "-4", "rule")).toMatch(rule);
    await untilPings(4);
    await expectPackets(4, { sees: ".51820: UDP", neverSees: /10\.65\.|echo re/ });
    expect(wg("node1", "wireguard.cali").every((peer) => peer.keepalive === "5")).toBe(true);
  },
  15 * MINUTES,
);

test(
  "FD-150 Felix restores a deleted WireGuard device and the encryption",
  async () => {
    lab.host("node1").run(["ip", "link", "del", "wireguard.cali"]);
    await eventually("the others learn the new key", () => {
      const key = lab.host("node1").run(["wg", "show", "wireguard.cali", "public-key"]).stdout.trim();
      return key !== "" && wg("node2", "wireguard.cali").some((peer) => peer.key === key);
    });
    await eventually("routes lead there again", () =>
      /^10\.65\.\S+ dev wireguard\.cali/m.test(ip("node1", "-4", "route", "show", "table", "1")),
    );
    await untilPings(4);
    await expectPackets(4, { sees: ".51820: UDP", neverSees: /10\.65\.|echo re/ });
  },
  10 * MINUTES,
);

test(
  "FD-152 host encryption: traffic of the nodes themselves is encrypted too",
  async () => {
    patchFelix({ wireguardHostEncryptionEnabled: true });
    for (const [node, far] of [
      ["node1", ADDRESS.node2],
      ["node2", ADDRESS.node1],
    ] as const)
      await eventually(`${node} sends to the other encrypted`, () =>
        ip(node, "-4", "route", "show", "table", "1").includes(`${far} dev wireguard.cali`),
      );
    const ping = (count: number) =>
      lab.host("node1").run(["ping", `-c${count}`, "-i0.3", "-W2", ADDRESS.node2]).code === 0;
    await eventually("node1 reaches node2", () => ping(1));
    const seen = await capture("node1", () => void ping(3));
    expect(seen).toContain(".51820: UDP");
    expect(seen).not.toContain("ICMP echo re");
  },
  10 * MINUTES,
);

test(
  "FD-151 WireGuard for IPv6: separate device, key and table, and only encrypted UDP packets between the nodes",
  async () => {
    await untilPings(6);
    await expectPackets(6, { sees: "ICMP6, echo request", neverSees: /\.51821/ });
    patchFelix({ wireguardHostEncryptionEnabled: false, wireguardEnabledV6: true });
    await eventually("keys are published", () => nodeStatuses().every((s) => s.wireguardPublicKeyV6 !== undefined));
    await eventually("peers are set", () => NODES.every((node) => wg(node, "wg-v6.cali").length === 1));
    for (const node of NODES)
      await eventually("routes lead there", () =>
        /^fd65:\S+ dev wg-v6\.cali/m.test(ip(node, "-6", "route", "show", "table", "1")),
      );
    expect(ip("node1", "-6", "rule")).toMatch(/99:\s+not from all fwmark 0x200000\/0x200000 lookup 1/);
    expect(wg("node1", "wg-v6.cali")[0]?.endpoint).toBe("[fd00:77::c]:51821");
    await untilPings(6);
    await expectPackets(6, { sees: ".51821: UDP", neverSees: /fd65:|echo re/ });
    await untilPings(4);
    await expectPackets(4, { sees: ".51820: UDP", neverSees: /10\.65\.|echo re/ });
    expect(nodeStatuses()[0]?.wireguardPublicKeyV6).not.toBe(nodeStatuses()[0]?.wireguardPublicKey);
  },
  15 * MINUTES,
);

test(
  "FD-150 FD-151 WireGuard disabled: devices, rules and keys are removed, packets are plain",
  async () => {
    patchFelix({ wireguardEnabled: false, wireguardEnabledV6: false });
    for (const node of NODES)
      for (const device of ["wireguard.cali", "wg-v6.cali"])
        await eventually(
          `${node} has no ${device}`,
          () => lab.host(node).run(["ip", "link", "show", device]).code !== 0,
        );
    for (const family of ["-4", "-6"])
      await eventually("no rule", () => NODES.every((node) => !/lookup 1$/m.test(ip(node, family, "rule"))));
    await eventually("no keys", () => nodeStatuses().every((s) => !s.wireguardPublicKey && !s.wireguardPublicKeyV6));
    await untilPings(4);
    await expectPackets(4, { sees: "ICMP echo request", neverSees: /\.51820/ });
    await untilPings(6);
    await expectPackets(6, { sees: "ICMP6, echo request", neverSees: /\.51821/ });
  },
  10 * MINUTES,
);

// --- helpers ---------------------------------------------------------------------------------------------------------

const ip = (node: string, ...args: string[]): string => lab.host(node).run(["ip", ...args]).stdout;

function patchFelix(spec: object): void {
  const kind = { apiVersion: API_VERSION, kind: "FelixConfiguration", metadata: { name: "default" } } as const;
  try {
    lab.calicoctl(["patch", "felixconfiguration", "default", "-p", JSON.stringify({ spec })]);
  } catch {
    lab.apply([{ ...kind, spec }]); // it does not exist yet
  }
}

function setNodeSubnets(length: number): void {
  for (const [node, address] of Object.entries(ADDRESS)) {
    const patch = { spec: { bgp: { ipv4Address: `${address}/${length}` } } };
    lab.calicoctl(["patch", "node", node, "-p", JSON.stringify(patch)]);
  }
}

function patchPool(spec: object): void {
  const pools = JSON.parse(lab.calicoctl(["get", "ippools", "-o", "json"])) as {
    items: { metadata: { name: string }; spec: { cidr: string } }[];
  };
  const pool = pools.items.find((item) => item.spec.cidr.startsWith("10."));
  lab.calicoctl(["patch", "ippool", pool?.metadata.name ?? "", "-p", JSON.stringify({ spec })]);
}

function nodeStatuses(): { wireguardPublicKey?: string; wireguardPublicKeyV6?: string }[] {
  const nodes = JSON.parse(lab.calicoctl(["get", "nodes", "-o", "json"])) as { items: { status?: object }[] };
  return nodes.items.map((node) => node.status ?? {});
}

function wg(node: string, device: string): { key: string; endpoint: string; allowed: string; keepalive: string }[] {
  const lines = lab.host(node).run(["wg", "show", device, "dump"]).stdout.trim().split("\n").slice(1);
  return lines.map((line) => {
    const [key = "", , endpoint = "", allowed = "", , , , keepalive = ""] = line.split("\t");
    return { key, endpoint, allowed, keepalive };
  });
}

const addressOf = (pod: LabPod, version: 4 | 6): string =>
  pod.addresses.find((address) => address.includes(":") === (version === 6)) ?? "";

function ping(from: string, to: string, version: 4 | 6, count = 1): boolean {
  const source = lab.pod(from);
  const target = addressOf(lab.pod(to), version);
  const command = ["ip", "netns", "exec", podNamespace(source), "ping", `-c${count}`, "-i0.3", "-W2", target];
  return lab.host(source.node).run(command).code === 0;
}

const untilPings = (version: 4 | 6) =>
  eventually(`pod1 reaches pod2 over IPv${version}`, () => ping("pod1", "pod2", version));

/** @param retry called every ten seconds while the route is not as expected */
async function untilRoute(node: string, pod: string, want: RegExp, retry: () => void = () => {}): Promise<void> {
  let retriedAt = performance.now();
  const block = addressOf(lab.pod(pod), 4).split(".").slice(0, 3).join(".");
  let found = "";
  await eventually(
    `${node} routes to ${pod} by ${want}`,
    () => {
      const lines = ip(node, "-4", "route")
        .split("\n")
        .filter((line) => line.startsWith(block) && line.includes("/26"));
      found = lines.join("; ");
      if (performance.now() - retriedAt > 10_000) {
        retry();
        retriedAt = performance.now();
      }
      return lines.some((line) => want.test(line));
    },
    () => found,
  );
}

/** Captures packets between the nodes, on the sender's interface, while one pod pings the other. */
async function expectPackets(
  version: 4 | 6,
  want: { readonly sees: string; readonly neverSees: RegExp },
): Promise<void> {
  const seen = await capture("node1", () => void ping("pod1", "pod2", version, 4));
  expect(seen).toContain(want.sees);
  expect(seen.split("\n").filter((line) => want.neverSees.test(line))).toEqual([]);
}

/** Excludes BGP, ARP and neighbour discovery of the underlay. */
async function capture(node: string, traffic: () => void): Promise<string> {
  const filter = "not tcp port 179 and not arp and not (icmp6 and ip6[40] >= 130 and ip6[40] <= 137)";
  const [file, ...args] = lab.host(node).enter(["tcpdump", "-lni", "eth0", filter]);
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  const listening = new Promise<void>((resolve) =>
    child.stderr.on("data", (chunk: Buffer) => {
      if (chunk.toString().includes("listening on")) resolve();
    }),
  );
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  await listening;
  traffic();
  await new Promise((resolve) => setTimeout(resolve, 1000)); // tcpdump prints lines with a delay
  const closed = new Promise((resolve) => child.on("close", resolve));
  spawnSync("kill", ["-INT", String(child.pid)]);
  await closed;
  return out;
}

async function eventually(what: string, holds: () => boolean, detail: () => string = () => ""): Promise<void> {
  const end = performance.now() + 5 * MINUTES;
  while (!holds()) {
    if (performance.now() > end) {
      for (const node of NODES)
        console.log(
          readFileSync(lab.folder.log(lab.host(node).programName("calico-node")), "utf8")
            .split("\n")
            .slice(-25)
            .join("\n"),
        );
      throw new Error(`timed out: ${what} ${detail()}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}
