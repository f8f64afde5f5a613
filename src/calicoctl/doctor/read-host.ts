// Reads the facts about the host that doctor runs on, without changing anything. Each value is read separately: if reading
// one fails, only the checks that use it fail.
import { spawnSync } from "node:child_process";
import { hostname, release } from "node:os";
import { BIRD_SOCKETS, bgpSessions, connectBird, parseProtocols, parseStatus } from "../../bgp/index.ts";
import {
  isRejecting,
  NetworkNamespace,
  openRtnetlink,
  RT_TABLE_MAIN,
  type Rtnetlink,
  withNamespace,
} from "../../kernel/index.ts";
import { type Cidr, cidrAddress, cidrContains, cidrLength, type IpVersion, parseAddress } from "../../lib/ip/ip.ts";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { loadSessionEvidence } from "../../node/index.ts";
import { kernelFiles, moduleFinder } from "../node/modules.ts";
import { isFelix, processesHere } from "../node/processes.ts";
import type { ClusterFacts, HostFacts, KernelRoute, LocalNode, NeighbourTable, RuleCount } from "./facts.ts";
import { readStaleConnections } from "./host-connections.ts";
import { readGuard } from "./host-guard.ts";
import { readRejected } from "./host-rejected-rules.ts";
import { type FilterChain, parseLegacySave, parseNftTable } from "./packet-filters.ts";
import { readParts } from "./read-parts.ts";

const NODENAME_FILE = "/var/lib/calico/nodename";
/** The gateway address in every pod. */
const POD_GATEWAY = parseAddress("169.254.1.1");
const TOOL_TIMEOUT_MS = 10_000;

/** Identifies this host's node by calico-node's nodename file or a running Felix. Undefined if the host is not a node. */
export function localNode(env: Readonly<Record<string, string | undefined>>): LocalNode | undefined {
  const file = env["CALICO_NODENAME_FILE"] || NODENAME_FILE;
  const recorded = readFileIfExists(file)?.trim() || undefined;
  const felix = processesHere().find(isFelix);
  const name = recorded ?? (felix === undefined ? undefined : hostnameOf(felix.pid));
  if (name === undefined) return undefined;
  return {
    name,
    hasAgent: felix !== undefined,
    evidence: [
      ...(recorded === undefined ? [] : [`${file} contains ${recorded}`]),
      ...(felix === undefined ? [] : [`Felix runs on this host (process ${felix.pid})`]),
    ],
  };
}

/** Returns the node name of a running Felix, from its environment or the host name. */
function hostnameOf(pid: number): string {
  const environment = new Map(
    (readFileIfExists(`/proc/${pid}/environ`) ?? "").split("\0").map((line) => {
      const at = line.indexOf("=");
      return [line.slice(0, at).toUpperCase(), line.slice(at + 1)] as const;
    }),
  );
  return environment.get("FELIX_FELIXHOSTNAME") || environment.get("NODENAME") || hostname().toLowerCase();
}

export async function readHost(node: string, cluster: ClusterFacts): Promise<HostFacts> {
  const { readActivePlan, readSessionEvidence } = await loadSessionEvidence();
  using kernel = openRtnetlink();
  const tables = toolOutput("nft", ["list", "tables"]);
  const legacy = toolOutput("iptables-legacy-save", []);
  const guard = await readGuard();
  const staleConnections = await readOnce(() => readStaleConnections(kernel, node, cluster));
  const birds = { 4: await readBird(4), 6: await readBird(6) };
  return readEach<HostFacts>({
    node: () => node,
    links: () => readLinks(kernel),
    sysctl: () => (path) => readFileIfExists(`/proc/sys/${path}`)?.trim(),
    hasModule: () => moduleFinder(kernelFiles(release())),
    routesToPodGateway: () => kernel.routes.lookup(POD_GATEWAY) !== undefined,
    blockRoutes: () => blockRoutes(kernel, node, cluster),
    pathMtu: () => pathMtus(kernel, node, cluster),
    iptables: () => ({ legacy: countRules(legacy), nft: countRules(toolOutput("iptables-nft-save", [])) }),
    hasCalicoNftTable: () => tables?.includes(" calico\n"),
    guard: () => guard,
    staleConnections,
    filters: () => [...nftFilters(tables ?? ""), ...parseLegacySave("ip", legacy ?? "")],
    neighbourTable: () => ({ 4: neighbourTable(kernel, 4), 6: neighbourTable(kernel, 6) }),
    birds: () => birds,
    sessionEvidence: () => readSessionEvidence(),
    planProblems: () => readActivePlan()?.problems ?? [],
    rejected: () => readRejected(),
    parts: () =>
      readParts({
        answering: new Set([...(birds[4] === undefined ? [] : ["bird"]), ...(birds[6] === undefined ? [] : ["bird6"])]),
      }),
  });
}

/** Reads a value, and returns a function that returns it, or throws the error of the read. */
async function readOnce<T>(read: () => Promise<T>): Promise<() => T> {
  try {
    const value = await read();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

/** Reads all values now. If reading a value failed, its getter throws the error. */
function readEach<T extends object>(readers: { readonly [K in keyof T]: () => T[K] }): T {
  const values = {} as T;
  for (const name of Object.keys(readers) as (keyof T)[]) {
    try {
      Object.defineProperty(values, name, { value: readers[name](), enumerable: true });
    } catch (error) {
      Object.defineProperty(values, name, {
        get: () => {
          throw error;
        },
      });
    }
  }
  return values;
}

function readLinks(kernel: Rtnetlink): HostFacts["links"] {
  const addresses = Map.groupBy(kernel.addresses.list(), ({ link }) => link);
  return kernel.links.list().map(({ name, index, mtu, isUp, isRunning }) => ({
    name,
    mtu,
    isUp,
    hasCarrier: isRunning,
    networks: (addresses.get(index) ?? []).map(({ address, length }) => ({ address, length })),
  }));
}

/** Limits the number of lookups: if routes are missing, some of these blocks show it. */
const MAX_BLOCKS = 5000;

function blockRoutes(kernel: Rtnetlink, node: string, { blocks }: ClusterFacts): HostFacts["blockRoutes"] {
  const others = blocks.filter(({ host }) => host !== node).slice(0, MAX_BLOCKS);
  let rejecting: readonly KernelRoute[] | undefined;
  return new Map(
    others.map(({ cidr }) => {
      const route = kernel.routes.lookup(cidrAddress(cidr));
      return [cidr, route ?? longestMatch((rejecting ??= rejectingRoutes(kernel)), cidr)];
    }),
  );
}

/** Routes that reject packets, which a lookup does not return. They include those of BIRD and Felix for the host's own blocks. */
const rejectingRoutes = (kernel: Rtnetlink): readonly KernelRoute[] =>
  ([4, 6] as const).flatMap((version) =>
    kernel.routes.list({ version, table: RT_TABLE_MAIN }).filter(({ type }) => isRejecting(type)),
  );

function longestMatch(routes: readonly KernelRoute[], block: Cidr): KernelRoute | undefined {
  return routes
    .filter(({ destination }) => cidrContains(destination, cidrAddress(block)))
    .sort((a, b) => cidrLength(b.destination) - cidrLength(a.destination))[0];
}

function pathMtus(kernel: Rtnetlink, node: string, cluster: ClusterFacts): ReadonlyMap<string, number> {
  const byIndex = new Map(kernel.links.list().map((link) => [link.index, link.mtu]));
  const found = new Map<string, number>();
  for (const other of cluster.nodes.values())
    for (const version of [4, 6] as const) {
      const address = other.networks[version]?.address;
      if (other.name === node || address === undefined) continue;
      const route = kernel.routes.lookup(address);
      // A route may have its own, smaller MTU: configured, or learned by path MTU discovery.
      const mtu = route?.metrics?.mtu ?? byIndex.get(route?.link ?? route?.nextHops?.[0]?.link ?? -1);
      if (route?.type === "unicast" && mtu !== undefined)
        found.set(other.name, Math.min(mtu, found.get(other.name) ?? mtu));
    }
  return found;
}

/** Reads the base chains of all nftables tables except those of Calico and kube-proxy. */
function nftFilters(tables: string): readonly FilterChain[] {
  return [...tables.matchAll(/^table (ip|ip6|inet) (\S+)$/gm)].flatMap(([, family = "", table = ""]) => {
    if (/^(calico|kube-proxy)/.test(table)) return [];
    const text = toolOutput("nft", ["list", "table", family, table]) ?? "";
    return parseNftTable(family as FilterChain["family"], table, text);
  });
}

function countRules(text: string | undefined): RuleCount | undefined {
  if (text === undefined) return undefined;
  const rules = text.split("\n").filter((line) => line.startsWith("-A "));
  return {
    all: rules.length,
    calico: rules.filter((rule) => rule.startsWith("-A cali-")).length,
    kubernetes: rules.filter((rule) => rule.startsWith("-A KUBE-")).length,
  };
}

function toolOutput(tool: string, args: readonly string[]): string | undefined {
  const { status, stdout } = spawnSync(tool, args, {
    encoding: "utf8",
    timeout: TOOL_TIMEOUT_MS,
    maxBuffer: 1 << 28,
    stdio: ["ignore", "pipe", "ignore"],
  });
  return status === 0 ? stdout : undefined;
}

/**
 * Reads the usage of the neighbour table, which all network namespaces share and whose statistics the kernel shows only in
 * the initial one. Permanent entries, such as those of tunnels, do not count against the limit.
 */
function neighbourTable(kernel: Rtnetlink, version: IpVersion): NeighbourTable | undefined {
  try {
    const permanent = kernel.neighbours.list({ version }).filter(({ state }) => state === "permanent").length;
    using initial = NetworkNamespace.ofProcess(1);
    return withNamespace(initial, () => {
      const [heading = "", ...rows] = (
        readFileIfExists(`/proc/thread-self/net/stat/${version === 4 ? "arp" : "ndisc"}_cache`) ?? ""
      )
        .trim()
        .split("\n");
      const at = heading.split(/\s+/).indexOf("table_fulls");
      const limit = Number(readFileIfExists(`/proc/sys/net/ipv${version}/neigh/default/gc_thresh3`));
      const cells = rows.map((row) => row.split(/\s+/).map((cell) => Number.parseInt(cell, 16)));
      const entries = cells[0]?.[0];
      if (entries === undefined || !(limit > 0)) return undefined;
      return {
        entries: Math.max(0, entries - permanent),
        limit,
        overflows: at < 0 ? 0 : cells.reduce((sum, row) => sum + (row[at] ?? 0), 0),
      };
    });
  } catch {
    return undefined; // not root, or the kernel does not provide the statistics
  }
}

async function readBird(version: IpVersion): Promise<HostFacts["birds"][IpVersion]> {
  try {
    using control = await connectBird(BIRD_SOCKETS[version]);
    return {
      routerId: parseStatus(await control.request("show status")).routerId,
      sessions: bgpSessions(parseProtocols(await control.request("show protocols all"))),
    };
  } catch {
    return undefined; // read-parts.ts reports a BIRD that does not run
  }
}
