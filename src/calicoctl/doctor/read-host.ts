// Reads the host we run on. Nothing here changes anything, and what cannot be read is left undefined.
import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { release } from "node:os";
import { BIRD_SOCKETS, bgpSessions, connectBird, parseProtocols, parseStatus } from "../../bgp/index.ts";
import { NetworkNamespace, openRouteKernel, type RouteKernel, withNamespace } from "../../kernel/index.ts";
import { cidrAddress, type IpVersion, parseAddress } from "../../lib/ip.ts";
import { readIfThere } from "../../lib/whole-file.ts";
import { loadSurroundings } from "../../node/index.ts";
import { kernelFiles, moduleFinder } from "../node/modules.ts";
import { isFelix, processesHere } from "../node/processes.ts";
import { readSupervision } from "../node/supervisor.ts";
import { readRefused } from "./host-refused.ts";
import type { ClusterFacts, HostFacts, HostPart, NeighbourTable, RuleCount } from "./facts.ts";
import { type FilterChain, parseLegacySave, parseNftTable } from "./packet-filters.ts";

const NODENAME_FILE = "/var/lib/calico/nodename";
/** Felix touches it every ten seconds. */
const ALIVE_FILE = "/var/run/calico/felix-alive";
const SILENT_MS = 35_000;
/** What pods are told is their gateway. */
const POD_GATEWAY = parseAddress("169.254.1.1");
const TOOL_TIMEOUT_MS = 10_000;

/** The name of this host's node; undefined where it is none. */
export function nodeHere(env: Readonly<Record<string, string | undefined>>): string | undefined {
  return readIfThere(env["CALICO_NODENAME_FILE"] || NODENAME_FILE)?.trim() || undefined;
}

export async function readHost(node: string, cluster: ClusterFacts): Promise<HostFacts> {
  const { readPlanInForce, readSurroundings } = await loadSurroundings();
  using kernel = openRouteKernel();
  const links = kernel.links.list();
  const tables = toolOutput("nft", ["list", "tables"]);
  const legacy = toolOutput("iptables-legacy-save", []);
  const addresses = Map.groupBy(kernel.addresses.list(), ({ link }) => link);
  return {
    node,
    links: links.map(({ name, index, mtu, isUp }) => ({
      name,
      mtu,
      isUp,
      networks: (addresses.get(index) ?? []).map(({ address, length }) => ({ address, length })),
    })),
    sysctl: (path) => readIfThere(`/proc/sys/${path}`)?.trim(),
    hasModule: moduleFinder(kernelFiles(release())),
    routesToPodGateway: kernel.routes.lookup(POD_GATEWAY) !== undefined,
    blockRoutes: blockRoutes(kernel, node, cluster),
    pathMtu: pathMtus(kernel, node, cluster),
    iptables: { legacy: countRules(legacy), nft: countRules(toolOutput("iptables-nft-save", [])) },
    hasCalicoNftTable: tables?.includes(" calico\n"),
    filters: [...nftFilters(tables ?? ""), ...parseLegacySave("ip", legacy ?? "")],
    neighbourTable: { 4: neighbourTable(kernel, 4), 6: neighbourTable(kernel, 6) },
    birds: { 4: await readBird(4), 6: await readBird(6) },
    surroundings: readSurroundings(),
    planProblems: readPlanInForce()?.problems ?? [],
    refused: readRefused(),
    parts: readParts(),
  };
}

/** More are not needed to see that some are missing. */
const MOST_BLOCKS = 5000;

function blockRoutes(kernel: RouteKernel, node: string, { blocks }: ClusterFacts): HostFacts["blockRoutes"] {
  const others = blocks.filter(({ host }) => host !== node).slice(0, MOST_BLOCKS);
  return new Map(others.map(({ cidr }) => [cidr, kernel.routes.lookup(cidrAddress(cidr))]));
}

function pathMtus(kernel: RouteKernel, node: string, cluster: ClusterFacts): ReadonlyMap<string, number> {
  const byIndex = new Map(kernel.links.list().map((link) => [link.index, link.mtu]));
  const found = new Map<string, number>();
  for (const other of cluster.nodes.values())
    for (const version of [4, 6] as const) {
      const address = other.networks[version]?.address;
      if (other.name === node || address === undefined) continue;
      const route = kernel.routes.lookup(address);
      // A route may carry a smaller MTU: set by hand, or learnt from a router on the way.
      const mtu = route?.metrics?.mtu ?? byIndex.get(route?.link ?? route?.nextHops?.[0]?.link ?? -1);
      if (route?.type === "unicast" && mtu !== undefined)
        found.set(other.name, Math.min(mtu, found.get(other.name) ?? mtu));
    }
  return found;
}

/** Tables of Calico and kube-proxy are passed over. */
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
 * The table is the machine's, and is told only to who looks from the machine's own network namespace. Entries that stay,
 * such as those of tunnels, are in it but do not count against the limit.
 */
function neighbourTable(kernel: RouteKernel, version: IpVersion): NeighbourTable | undefined {
  try {
    const staying = kernel.neighbours.list({ version }).filter(({ state }) => state === "permanent").length;
    using machine = NetworkNamespace.ofProcess(1);
    return withNamespace(machine, () => {
      const [heading = "", ...rows] = (
        readIfThere(`/proc/thread-self/net/stat/${version === 4 ? "arp" : "ndisc"}_cache`) ?? ""
      )
        .trim()
        .split("\n");
      const at = heading.split(/\s+/).indexOf("table_fulls");
      const limit = Number(readIfThere(`/proc/sys/net/ipv${version}/neigh/default/gc_thresh3`));
      const cells = rows.map((row) => row.split(/\s+/).map((cell) => Number.parseInt(cell, 16)));
      const entries = cells[0]?.[0];
      if (entries === undefined || !(limit > 0)) return undefined;
      return {
        entries: Math.max(0, entries - staying),
        limit,
        overflows: at < 0 ? 0 : cells.reduce((sum, row) => sum + (row[at] ?? 0), 0),
      };
    });
  } catch {
    return undefined; // not allowed to look, or not this kernel
  }
}

async function readBird(version: IpVersion): Promise<HostFacts["birds"][IpVersion]> {
  try {
    using control = await connectBird(BIRD_SOCKETS[version]);
    return {
      routerId: parseStatus(await control.ask("show status")).routerId,
      sessions: bgpSessions(parseProtocols(await control.ask("show protocols all"))),
    };
  } catch {
    return undefined; // its absence is told by the supervisor's file
  }
}

function readParts(): readonly HostPart[] {
  const supervision = readSupervision();
  const here = processesHere();
  if (supervision === undefined) {
    // Somebody else's supervision: at least Felix must be there.
    const felix = here.find(isFelix);
    if (felix !== undefined) return [partOf("felix", felix.pid, "it is running")];
    return [{ name: "felix", isRunning: false, detail: "no process of that name is there" }];
  }
  const { pid, children } = supervision;
  const alive = new Set(here.map((each) => each.pid));
  if (!alive.has(pid))
    return [
      {
        name: "calico-node",
        isRunning: false,
        detail: `its process ${pid} has ended; nothing supervises the rest, which works on as it is`,
        fix: "start it again (systemctl start calico-node, or the pod); its last lines in /var/log/calico or `journalctl -u calico-node` say why it ended",
      },
    ];
  const own = partOf("calico-node", pid, "it is running");
  return [
    ...(own.isRunning ? [] : [own]),
    ...children.map(({ name, state, pid: child, lastExit }): HostPart => {
      if (state === "running" && child !== undefined && alive.has(child)) return partOf(name, child, `it is ${state}`);
      if (lastExit?.error !== undefined)
        return { name, isRunning: false, detail: `it cannot be started: ${lastExit.error}` };
      const detail =
        lastExit === undefined
          ? `it is ${state}`
          : `it is ${state}, and ended last with ${lastExit.signal ?? `code ${lastExit.code}`} at ${lastExit.at}`;
      return { name, isRunning: false, detail };
    }),
  ];
}

/** A process that is there: unless it was stopped, or says nothing any more. */
function partOf(name: string, pid: number, detail: string): HostPart {
  const state = /\) (\S)/.exec(readIfThere(`/proc/${pid}/stat`) ?? "")?.[1];
  if (state === "T" || state === "t")
    return {
      name,
      isRunning: false,
      isStuck: true,
      detail: `its process ${pid} is stopped (${state === "T" ? "SIGSTOP" : "by a debugger"}): what is in the kernel stays, nothing new gets there`,
      fix: `kill -CONT ${pid}, or restart calico-node`,
    };
  const silentMs = name === "felix" ? silence() : undefined;
  if (silentMs === undefined || silentMs < SILENT_MS) return { name, isRunning: true, detail };
  return {
    name,
    isRunning: false,
    isStuck: true,
    detail: `its process ${pid} is there and has given no sign of life for ${Math.round(silentMs / 1000)} s: it hangs, or the machine gives it no time`,
    fix: `calicoctl node diags keeps what is to be seen; then restart calico-node`,
  };
}

function silence(): number | undefined {
  try {
    return Date.now() - statSync(ALIVE_FILE).mtimeMs;
  } catch {
    return undefined; // it has not begun, or writes its files elsewhere
  }
}
