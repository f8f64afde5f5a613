// Opens the real kernel with the backend the configuration asks for, or the one that fits.
import { existsSync, readFileSync } from "node:fs";
import { release } from "node:os";
import {
  findIptablesProgram,
  Iptables,
  type IptablesVariant,
  Ipsets,
  LegacyTables,
  legacyTableNamesPath,
  listenForAnnouncement,
  Nft,
  openConntrack,
  openNeighbourResponder,
  openRouteKernel,
  openTrafficControl,
  openWireguard,
  procSysctls,
  runTool,
  setThreaded,
  hasTransmitChecksumOffload,
  setTransmitChecksumOffload,
} from "../kernel/index.ts";
import type { IpVersion } from "../lib/ip.ts";
import type { Logger } from "../lib/log.ts";
import { detectFeatures, detectIptablesVariant, type HostFeatures } from "./iptables/detect.ts";
import { IPVS_DEVICE } from "./host-watch.ts";
import type { LinuxKernel } from "./linux-kernel.ts";
import { whyIptables } from "./nft/probe.ts";
import { whyNoRecords } from "./flow-records.ts";
import { type DataplaneFacts, type DataplaneParameters, wantsFlowLogs } from "./parameters.ts";
import type { RulesKernel } from "./rule-planes.ts";
import type { SweepTargets } from "./sweeper.ts";

const LOCK_SECONDS = 10;
const PROBE_MS = 30_000;

export function hasIpvsDevice(): boolean {
  using routes = openRouteKernel();
  return routes.links.list().some(({ name }) => name === IPVS_DEVICE);
}

/** False if the kernel has no IPv6, or was started with `ipv6.disable=1`. */
export const hasIpv6 = (): boolean => existsSync("/proc/sys/net/ipv6");

export async function openLinuxKernel(
  parameters: DataplaneParameters,
  facts: DataplaneFacts,
  logger: Logger,
): Promise<LinuxKernel & Disposable> {
  const nft = new Nft();
  const versions: readonly IpVersion[] = parameters.Ipv6Support ? [4, 6] : [4];
  const routes = openRouteKernel();
  const conntrack = openConntrack();
  const trafficControl = openTrafficControl();
  const opened: Disposable[] = [nft, routes, conntrack, trafficControl];
  const close = () => {
    for (const part of opened) part[Symbol.dispose]();
  };
  try {
    const { rules, features } = await chooseRules(parameters, facts, versions, nft, logger);
    if (rules.backend === "iptables" && rules.outlines instanceof LegacyTables) opened.push(rules.outlines);
    const noFlowRecords = wantsFlowLogs(parameters) ? await whyNoRecords(rules, versions) : undefined;
    const leftovers = leftoversOf(rules, versions, nft);
    const wireguard = { open: () => openWireguard(), setThreaded };
    const isAuto = !["Enabled", "Disabled"].includes(parameters.NFTablesMode);
    const backendNow = () => {
      if (routes.links.get(IPVS_DEVICE) !== undefined) return "iptables" as const;
      // What a kernel has it does not lose.
      if (rules.backend === "nftables") return "nftables" as const;
      return whyIptables(parameters.NFTablesMode, { ipvs: false }, nft) === undefined ? "nftables" : "iptables";
    };
    const kernel = {
      ...(isAuto ? { backendNow } : {}),
      ...(noFlowRecords === undefined ? {} : { noFlowRecords }),
      ...(features.checksumOffloadBroken ? { switchOffChecksums } : {}),
      rules,
      leftovers,
      routes,
      conntrack,
      trafficControl,
      wireguard,
      listenForAnnouncement,
      openNeighbourResponder,
      sysctls: procSysctls,
    };
    return { ...kernel, [Symbol.dispose]: close };
  } catch (error) {
    close();
    throw error;
  }
}

async function chooseRules(
  parameters: DataplaneParameters,
  facts: DataplaneFacts,
  versions: readonly IpVersion[],
  nft: Nft,
  logger: Logger,
): Promise<{ rules: RulesKernel; features: HostFeatures }> {
  const override = parameters.FeatureDetectOverride;
  const reason = whyIptables(parameters.NFTablesMode, facts, nft);
  if (reason === undefined) {
    logger.info("rules are written with nftables");
    return {
      rules: { backend: "nftables", ruleset: nft },
      features: detectFeatures({ iptablesVersion: "", kernelVersion: release(), override }),
    };
  }
  const variant = await chooseVariant(parameters, versions, logger);
  const version = await iptablesVersion(variant);
  const features = detectFeatures({ iptablesVersion: version, kernelVersion: release(), override });
  logger.info("rules are written with iptables", { variant, version: version.trim(), reason });
  const lock = { timeoutSeconds: LOCK_SECONDS, probeMs: parameters.IptablesLockProbeIntervalMillis };
  return {
    features,
    rules: {
      backend: "iptables",
      variant,
      features,
      ipsets: new Ipsets(),
      iptables: (family) => new Iptables({ family, variant, ...(features.restoreWait ? { lock } : {}) }),
      otherVariant: () =>
        variant === "nft"
          ? legacyStores([4, 6])
          : ([4, 6] as const)
              .filter((family) => findIptablesProgram(family, "nft", "save") !== undefined)
              .map((family) => new Iptables({ family, variant: "nft" })),
      ruleset: nft,
      ...(variant === "legacy" ? { outlines: new LegacyTables(versions) } : {}),
    },
  };
}

function switchOffChecksums(device: string): void {
  if (hasTransmitChecksumOffload(device)) setTransmitChecksumOffload(device, false);
}

/** The places the chosen backend does not write to. */
function leftoversOf(rules: RulesKernel, versions: readonly IpVersion[], nft: Nft): SweepTargets {
  const own = rules.backend === "iptables" ? rules.variant : undefined;
  const families = versions.map((version) => (version === 4 ? ("ip" as const) : ("ip6" as const)));
  return {
    ...(own === "nft" ? {} : { shared: { ruleset: nft, families } }),
    ...(own === "legacy" ? {} : { iptables: legacyStores(versions) }),
    ...(own === undefined ? { ipsets: new Ipsets() } : { ruleset: nft }),
  };
}

/** Every place any of the backends writes to. */
export function allPlaces(nft: Nft): SweepTargets {
  const shared = { ruleset: nft, families: ["ip", "ip6"] } as const;
  return { ruleset: nft, shared, iptables: legacyStores([4, 6]), ipsets: new Ipsets() };
}

/** Asking the legacy tool loads modules, and asking for a table makes it: only where there is something already. */
function legacyStores(versions: readonly IpVersion[]): Iptables[] {
  return versions
    .filter((family) => {
      const actions = ["save", "restore"] as const;
      if (actions.some((action) => findIptablesProgram(family, "legacy", action) === undefined)) return false;
      const path = legacyTableNamesPath(family);
      return existsSync(path) && readFileSync(path, "utf8").trim() !== "";
    })
    .map((family) => new Iptables({ family, variant: "legacy" }));
}

async function chooseVariant(
  parameters: DataplaneParameters,
  versions: readonly IpVersion[],
  logger: Logger,
): Promise<IptablesVariant> {
  const detected = await detectIptablesVariant(
    {
      save: async (variant, version, table) => {
        const program = findIptablesProgram(version, variant, "save");
        if (program === undefined) return undefined;
        try {
          return await runTool(program, table === undefined ? [] : ["-t", table], "", PROBE_MS);
        } catch {
          return undefined;
        }
      },
      hasLegacyModules: (version) => existsSync(legacyTableNamesPath(version)),
    },
    versions,
  );
  const asked = parameters.IptablesBackend;
  if (asked !== "legacy" && asked !== "nft") {
    logger.info("iptables variant found", { variant: detected.variant, why: detected.why });
    return detected.variant;
  }
  if (asked !== detected.variant)
    logger.warn("IptablesBackend is not the variant this host seems to use", { asked, ...detected });
  return asked;
}

async function iptablesVersion(variant: IptablesVariant): Promise<string> {
  const program = findIptablesProgram(4, variant, "restore");
  if (program === undefined) return "";
  try {
    return await runTool(program, ["--version"], "", PROBE_MS);
  } catch {
    return "";
  }
}
