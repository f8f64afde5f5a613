// Opens the kernel interfaces of the dataplane, and selects the backend for rules.
import { existsSync, readFileSync } from "node:fs";
import { release } from "node:os";
import {
  findIptablesProgram,
  Iptables,
  type IptablesVariant,
  Ipsets,
  LegacyTableFingerprints,
  legacyTableNamesPath,
  watchGratuitousArp,
  Nft,
  openConntrack,
  openNeighbourResponder,
  openRtnetlink,
  openTrafficControl,
  openWireguard,
  procSysctls,
  runTool,
  setThreadedNapi,
  hasTransmitChecksumOffload,
  setTransmitChecksumOffload,
} from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { detectFeatures, detectIptablesVariant, type HostFeatures } from "../iptables/detect.ts";
import { IPVS_DEVICE } from "./host-watch.ts";
import type { LinuxKernel } from "./linux-kernel.ts";
import { reasonForIptables } from "../nft/probe.ts";
import { findNflogError } from "./nflog-support.ts";
import { type DataplaneFacts, type DataplaneParameters, areFlowLogsEnabled } from "../parameters.ts";
import type { RulesKernel } from "../rule-backend.ts";
import type { SweepTargets } from "../cleanup/sweeper.ts";

const LOCK_SECONDS = 10;
const PROBE_MS = 30_000;

export function hasIpvsDevice(): boolean {
  using routes = openRtnetlink();
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
  const routes = openRtnetlink();
  const conntrack = openConntrack();
  const trafficControl = openTrafficControl();
  const opened: Disposable[] = [nft, routes, conntrack, trafficControl];
  const close = () => {
    for (const part of opened) part[Symbol.dispose]();
  };
  try {
    const { rules, features } = await chooseRules(parameters, facts, versions, nft, logger);
    if (rules.backend === "iptables" && rules.fingerprints instanceof LegacyTableFingerprints)
      opened.push(rules.fingerprints);
    const nflogError = areFlowLogsEnabled(parameters) ? await findNflogError(rules, versions) : undefined;
    const leftovers = otherBackendTargets(rules, versions, nft);
    const wireguard = { open: () => openWireguard(), setThreadedNapi };
    const isAuto = !["Enabled", "Disabled"].includes(parameters.NFTablesMode);
    const currentBackend = () => {
      if (routes.links.get(IPVS_DEVICE) !== undefined) return "iptables" as const;
      // A kernel does not lose its support for nftables.
      if (rules.backend === "nftables") return "nftables" as const;
      return reasonForIptables(parameters.NFTablesMode, { ipvs: false }, nft) === undefined ? "nftables" : "iptables";
    };
    const kernel = {
      ...(isAuto ? { currentBackend } : {}),
      nflogError,
      ...(features.checksumOffloadBroken ? { disableChecksumOffload } : {}),
      rules,
      leftovers,
      routes,
      conntrack,
      trafficControl,
      wireguard,
      watchGratuitousArp,
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
  const reason = reasonForIptables(parameters.NFTablesMode, facts, nft);
  if (reason === undefined) {
    logger.info("using nftables for rules");
    return {
      rules: { backend: "nftables", ruleset: nft },
      features: detectFeatures({ iptablesVersion: "", kernelVersion: release(), override }),
    };
  }
  const variant = await chooseVariant(parameters, versions, logger);
  const version = await iptablesVersion(variant);
  const features = detectFeatures({ iptablesVersion: version, kernelVersion: release(), override });
  logger.info("using iptables for rules", { variant, version: version.trim(), reason });
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
      ...(variant === "legacy" ? { fingerprints: new LegacyTableFingerprints(versions) } : {}),
    },
  };
}

function disableChecksumOffload(device: string): void {
  if (hasTransmitChecksumOffload(device)) setTransmitChecksumOffload(device, false);
}

/** Where backends other than the selected one write. */
function otherBackendTargets(rules: RulesKernel, versions: readonly IpVersion[], nft: Nft): SweepTargets {
  const own = rules.backend === "iptables" ? rules.variant : undefined;
  const families = versions.map((version) => (version === 4 ? ("ip" as const) : ("ip6" as const)));
  return {
    ...(own === "nft" ? {} : { shared: { ruleset: nft, families } }),
    ...(own === "legacy" ? {} : { iptables: legacyStores(versions) }),
    ...(own === undefined ? { ipsets: new Ipsets() } : { ruleset: nft }),
  };
}

/** Where any backend writes. */
export function allSweepTargets(nft: Nft): SweepTargets {
  const shared = { ruleset: nft, families: ["ip", "ip6"] } as const;
  return { ruleset: nft, shared, iptables: legacyStores([4, 6]), ipsets: new Ipsets() };
}

/** Only for families with existing legacy tables: reading a table with the legacy tool would load modules and create it. */
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
  const configured = ({ Legacy: "legacy", NFT: "nft", Auto: undefined, "": undefined } as const)[
    parameters.IptablesBackend
  ];
  if (configured === undefined) {
    logger.info("detected the iptables variant", { variant: detected.variant, why: detected.why });
    return detected.variant;
  }
  if (configured !== detected.variant)
    logger.warn("IptablesBackend differs from the variant that this host seems to use", { configured, ...detected });
  return configured;
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
