// Tests borrowed addresses with small pools: each node has a pod with an address from each other node's block. All pods must
// reach each other, and each host must have exactly one route to each pod, whether Felix or BIRD programs the routes.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { down } from "../../../src/lab/down.ts";
import type { NewPod } from "../../../src/lab/folder.ts";
import type { Lab } from "../../../src/lab/lab.ts";
import { measureMatrix } from "../../../src/lab/matrix.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../../src/lab/options.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";
import { addPods, removePod, up } from "../../../src/lab/up.ts";
import {
  addressPlus,
  type Cidr,
  cidrAddress,
  cidrContains,
  type IpAddress,
  type IpVersion,
  maskCidr,
  parseAddress,
} from "../../../src/lib/ip/ip.ts";
import { eventually, pollUntil } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION, type Resource } from "../../../src/model/index.ts";

interface Shape {
  readonly title: string;
  readonly options: Partial<LabOptions> & { readonly name: string };
  readonly vxlanMode: "Always" | "Never";
  readonly configuration: readonly Resource[];
}
const programClusterRoutes = (kind: "FelixConfiguration" | "BGPConfiguration", value: string): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name: "default" },
  spec: { programClusterRoutes: value },
});
const SHAPES: readonly Shape[] = [
  {
    title: "VXLAN",
    options: { name: "lentvxlan", backend: "vxlan", dataplane: "iptables" },
    vxlanMode: "Always",
    configuration: [],
  },
  { title: "BGP", options: { name: "lentbgp", backend: "bird" }, vxlanMode: "Never", configuration: [] },
  {
    title: "routes without encapsulation that Felix programs",
    options: { name: "lentfelix", backend: "bird" },
    vxlanMode: "Never",
    configuration: [
      programClusterRoutes("FelixConfiguration", "Enabled"),
      programClusterRoutes("BGPConfiguration", "Disabled"),
    ],
  },
];
const VERSIONS: readonly IpVersion[] = [4, 6];
/** Four blocks of four addresses: one for a tunnel, one for the node's own pod, two for the other nodes. */
const POOLS = { 4: { cidr: "10.65.0.0/28", blockSize: 30 }, 6: { cidr: "fd65::/124", blockSize: 126 } } as const;

const BIRD_SCAN_MS = 2000;
const quiet = openTerminal({ quiet: true });

for (const { title, options: shape, vxlanMode, configuration } of SHAPES)
  describe(`borrowed addresses with ${title}`, () => {
    const options: LabOptions = { ...DEFAULT_OPTIONS, nodes: 3, podsPerNode: 0, ipv6: true, ...shape };
    let lab: Lab;
    /** Pods with an address from a block of another node. */
    const borrowers: (NewPod & { readonly requestedAddress: IpAddress })[] = [];

    beforeAll(async () => {
      lab = await up(options, quiet);
      lab.calicoctl(["delete", "ippools", "default-ipv4-ippool", "default-ipv6-ippool"]);
      lab.apply([...VERSIONS.map((version) => smallPool(version, vxlanMode)), ...configuration]);
      const nodes = lab.plan.nodes.map((node) => node.name);
      if (vxlanMode === "Always")
        await eventually(() => nodes.every((node) => tunnelAddresses(lab, node).length === 2));
      addPods(
        lab,
        nodes.map((node) => ({ ...{ namespace: "default", labels: {} }, name: `own-${node}`, node })),
      );
      const used = new Set([
        ...nodes.flatMap((node) => tunnelAddresses(lab, node)),
        ...lab.record.pods.flatMap((pod) => pod.addresses),
      ]);
      for (const version of VERSIONS)
        for (const owner of nodes)
          for (const node of nodes.filter((each) => each !== owner)) {
            const requestedAddress = freeAddress(blockOf(lab, owner, version), version, used);
            used.add(requestedAddress);
            const name = `v${version}-${node}-from-${owner}`;
            borrowers.push({ namespace: "default", labels: {}, name, node, requestedAddress });
          }
      addPods(lab, borrowers);
    }, 120_000);
    afterAll(() => down(options.name, quiet), 30_000);

    for (const version of VERSIONS)
      test(`IPv${version}: every pod reaches every pod`, async () => {
        const unreached = async () => {
          const cells = await measureMatrix(lab, { protocol: "tcp", port: 80, version, timeoutMs: 500 });
          const hasFamily = (name: string) =>
            lab.record.pods.some(
              (pod) => `default/${pod.name}` === name && pod.addresses.some((a) => a.includes(":") === (version === 6)),
            );
          const ofFamily = cells.filter(({ from }) => hasFamily(from));
          expect(ofFamily.length).toBe(9 * 9);
          return ofFamily.filter(({ result }) => result !== "reached").map(({ from, to }) => `${from} to ${to}`);
        };
        await pollUntil(unreached, (list) => list.length === 0);
      }, 60_000);

    for (const version of VERSIONS)
      test(`IPv${version}: every host has one route to each borrowed address`, async () => {
        const addresses = borrowers.map(({ requestedAddress }) => requestedAddress);
        const ofFamily = addresses.filter((address) => address.includes(":") === (version === 6));
        expect(ofFamily.length).toBe(6);
        const wrong = () =>
          lab.plan.nodes.flatMap(({ name }) =>
            ofFamily.flatMap((address) => {
              const lines = lab.host(name).run(["ip", `-${version}`, "route", "show", "to", "exact", address]).stdout;
              const routes = lines.split("\n").filter((line) => line.trim() !== "");
              return routes.length === 1 ? [] : [{ host: name, address, routes }];
            }),
          );
        await pollUntil(wrong, (list) => list.length === 0);
      }, 60_000);

    for (const version of VERSIONS)
      test(`IPv${version}: the route to a moved borrowed address changes once, to the new node`, async () => {
        const name = `v${version}-node2-from-node1`;
        const pod = lab.record.pods.find((each) => each.name === name);
        const requestedAddress = pod?.addresses[0];
        if (pod === undefined || requestedAddress === undefined) throw new Error(`pod ${name} does not exist`);
        await using monitor = await RouteMonitor.start(lab, "node1", requestedAddress);
        const before = monitor.nextHop;
        removePod(lab, pod);
        addPods(lab, [
          { namespace: "default", labels: {}, name: `v${version}-moved`, node: "node3", requestedAddress },
        ]);
        const ofNode3 =
          lab.record.pods.find((each) => each.name === `v${version}-node3-from-node1`)?.addresses[0] ?? "";
        const after = await eventually(() => nextHopOf(lab, "node1", ofNode3));
        expect(after).not.toBe(before);
        await eventually(() => monitor.nextHop === after);
        // BIRD compares its routes with the kernel's every 2 s, and could restore a stale route then.
        await monitor.settle();
        expect(monitor.nextHops.slice(monitor.nextHops.indexOf(after))).toEqual([after]);
        expect(monitor.routes).toBe(1);
      }, 60_000);
  });

/** Records the next hops of a host's best route to one address, oldest first; `undefined` while there is no such route. */
class RouteMonitor implements AsyncDisposable {
  /** By metric: a destination can have several routes with different metrics. */
  readonly #byMetric = new Map<number, string>();
  readonly #child: ReturnType<typeof spawn>;
  readonly #ended: Promise<void>;
  readonly nextHops: (string | undefined)[] = [];
  #changedAtMs = performance.now();
  #rest = "";
  #seen = "";

  private constructor(
    lab: Lab,
    host: string,
    readonly address: string,
  ) {
    const family = address.includes(":") ? "-6" : "-4";
    for (const line of lab.host(host).run(["ip", family, "route", "show", "to", "exact", address]).stdout.split("\n"))
      this.#read(line);
    const [file, ...args] = lab.host(host).enter(["stdbuf", "-oL", "ip", family, "-o", "monitor", "route"]);
    this.#child = spawn(file, args, { stdio: ["ignore", "pipe", "ignore"] });
    this.#child.stdout?.on("data", (chunk: Buffer) => {
      const lines = (this.#rest + chunk.toString()).split("\n");
      this.#rest = lines.pop() ?? "";
      for (const line of lines) this.#read(line);
    });
    this.#ended = new Promise((resolve) => this.#child.once("exit", () => resolve()));
  }

  static async start(lab: Lab, host: string, address: string): Promise<RouteMonitor> {
    const monitor = new RouteMonitor(lab, host, address);
    const [family, marker] = address.includes(":") ? ["-6", "2001:db8:ffff::/64"] : ["-4", "192.0.2.0/24"];
    // The monitor is ready when it reports a change.
    await eventually(() => {
      lab.host(host).run(["ip", family, "route", "replace", marker, "dev", "lo"]);
      lab.host(host).run(["ip", family, "route", "del", marker]);
      return monitor.#seen.includes(marker);
    });
    return monitor;
  }

  get nextHop(): string | undefined {
    return this.nextHops.at(-1);
  }
  get routes(): number {
    return this.#byMetric.size;
  }

  /** Waits until the routes have not changed for two of BIRD's scans. */
  async settle(): Promise<void> {
    await eventually(() => performance.now() - this.#changedAtMs > 2 * BIRD_SCAN_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#ended;
  }

  #read(line: string): void {
    this.#seen += `${line}\n`;
    const [, deleted, rest] = new RegExp(`^(Deleted )?(?:unicast )?${this.address} (.*)$`).exec(line) ?? [];
    if (rest === undefined) return;
    this.#changedAtMs = performance.now();
    const metric = Number(/ metric (\d+)/.exec(rest)?.[1] ?? 0);
    if (deleted === undefined) this.#byMetric.set(metric, /via (\S+)/.exec(rest)?.[1] ?? "direct");
    else this.#byMetric.delete(metric);
    const best = Math.min(...this.#byMetric.keys());
    const nextHop = this.#byMetric.get(best);
    if (this.nextHops.length === 0 || this.nextHop !== nextHop) this.nextHops.push(nextHop);
  }
}

function nextHopOf(lab: Lab, host: string, address: string): string | undefined {
  const family = address.includes(":") ? "-6" : "-4";
  const lines = lab.host(host).run(["ip", family, "route", "show", "to", "exact", address]).stdout;
  return /via (\S+)/.exec(lines)?.[1];
}

function smallPool(version: IpVersion, vxlanMode: string): Resource {
  const spec = { ...POOLS[version], vxlanMode, ipipMode: "Never", natOutgoing: false, nodeSelector: "all()" };
  return { apiVersion: API_VERSION, kind: "IPPool", metadata: { name: `small-${version}` }, spec };
}

/** The addresses of the node's tunnels that are from the small pools. */
function tunnelAddresses(lab: Lab, node: string): string[] {
  const { spec } = JSON.parse(lab.calicoctl(["get", "node", node, "-o", "json"])) as {
    readonly spec: { readonly ipv4VXLANTunnelAddr?: string; readonly ipv6VXLANTunnelAddr?: string };
  };
  return [spec.ipv4VXLANTunnelAddr, spec.ipv6VXLANTunnelAddr].filter(
    (address) =>
      address !== undefined && VERSIONS.some((v) => cidrContains(POOLS[v].cidr as Cidr, parseAddress(address))),
  ) as string[];
}

function blockOf(lab: Lab, node: string, version: IpVersion): Cidr {
  const pod = lab.record.pods.find(({ name }) => name === `own-${node}`);
  const address = pod?.addresses.find((each) => each.includes(":") === (version === 6));
  if (address === undefined) throw new Error(`own-${node} has no IPv${version} address`);
  return maskCidr(parseAddress(address), POOLS[version].blockSize);
}

function freeAddress(block: Cidr, version: IpVersion, used: ReadonlySet<string>): IpAddress {
  const size = 2 ** ((version === 4 ? 32 : 128) - POOLS[version].blockSize);
  for (let i = 0; i < size; i++) {
    const address = addressPlus(cidrAddress(block), i);
    if (!used.has(address)) return address;
  }
  throw new Error(`block ${block} is full`);
}
