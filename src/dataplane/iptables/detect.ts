// Detects which variant of iptables this host uses, and its features. The variants (legacy, nft) write to different kernel
// tables. calico-ts must use the same variant as the other programs of the host.
import type { IptablesTable, IptablesVariant } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { IptablesFeatures } from "./rule-text.ts";

export interface IptablesProbe {
  /** Returns one table or all tables as text; undefined if the tool is missing or fails. */
  save(variant: IptablesVariant, version: IpVersion, table?: IptablesTable): Promise<string | undefined>;
  /** True if the kernel has legacy tables. It is read before the legacy tool is run, because the tool loads the modules. */
  hasLegacyModules(version: IpVersion): boolean;
}

/** Chains that the kubelet creates so that other programs can detect its variant. */
const HINTS = /^:(KUBE-IPTABLES-HINT|KUBE-KUBELET-CANARY)\b/m;

export async function detectIptablesVariant(
  probe: IptablesProbe,
  versions: readonly IpVersion[],
): Promise<{ readonly variant: IptablesVariant; readonly why: string }> {
  const legacyVersions = versions.filter((version) => probe.hasLegacyModules(version));
  const hinted = async (variant: IptablesVariant, asked: readonly IpVersion[]) => {
    for (const version of asked.toReversed())
      if (HINTS.test((await probe.save(variant, version, "mangle")) ?? "")) return true;
    return false;
  };
  if (await hinted("nft", versions)) return { variant: "nft", why: "kubelet left its hint there" };
  if (await hinted("legacy", legacyVersions)) return { variant: "legacy", why: "kubelet left its hint there" };
  const count = async (variant: IptablesVariant, asked: readonly IpVersion[]) => {
    let rules = 0;
    for (const version of asked) {
      const text = (await probe.save(variant, version)) ?? "";
      rules += text.split("\n").filter((line) => line.startsWith("-")).length;
    }
    return rules;
  };
  const legacy = await count("legacy", legacyVersions);
  const nft = await count("nft", versions);
  return legacy >= nft
    ? { variant: "legacy", why: `${legacy} rules there, ${nft} in the other` }
    : { variant: "nft", why: `${nft} rules there, ${legacy} in the other` };
}

type Version = readonly number[];

/** `iptables v1.8.9 (nf_tables)` → 1.8.9 */
function parseVersion(text: string): Version | undefined {
  const match = /(\d+)\.(\d+)(?:\.(\d+))?/.exec(text);
  return match === null ? undefined : [Number(match[1]), Number(match[2]), Number(match[3] ?? 0)];
}

function isAtLeast(version: Version, desired: Version): boolean {
  for (let i = 0; i < 3; i++) {
    const difference = (version[i] ?? 0) - (desired[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

export interface HostFeatures extends IptablesFeatures {
  readonly restoreWait: boolean;
  /** The kernel computes wrong checksums of packets inside tunnels: checksum offload must be disabled. */
  readonly checksumOffloadBroken: boolean;
  readonly ipipIsLayer3: boolean;
}

/** @param override `Name=true|false` from the configuration; overrides detection */
export function detectFeatures(of: {
  readonly iptablesVersion: string;
  readonly kernelVersion: string;
  readonly override?: ReadonlyMap<string, string>;
}): HostFeatures {
  const iptables = parseVersion(of.iptablesVersion) ?? [1, 4, 7];
  const kernel = parseVersion(of.kernelVersion) ?? [3, 10, 0];
  const isNewRhel8 = Number(/^4\.18\.0-(\d+)/.exec(of.kernelVersion)?.[1] ?? 0) >= 330;
  const found = {
    SNATFullyRandom: isAtLeast(iptables, [1, 6, 0]) && isAtLeast(kernel, [3, 14, 0]),
    MASQFullyRandom: isAtLeast(iptables, [1, 6, 2]) && isAtLeast(kernel, [3, 14, 0]),
    RestoreSupportsLock: isAtLeast(iptables, [1, 6, 2]),
    ChecksumOffloadBroken: !isAtLeast(kernel, [5, 8, 0]),
    NFLogSize: isAtLeast(kernel, [4, 8, 0]),
    IPIPDeviceIsL3: isAtLeast(kernel, [5, 14, 0]) || isNewRhel8,
  };
  const value = (name: keyof typeof found): boolean => {
    const forced = of.override?.get(name)?.toLowerCase();
    return forced === "true" ? true : forced === "false" ? false : found[name];
  };
  return {
    snatRandomFully: value("SNATFullyRandom"),
    masqueradeRandomFully: value("MASQFullyRandom"),
    restoreWait: value("RestoreSupportsLock"),
    checksumOffloadBroken: value("ChecksumOffloadBroken"),
    nflogSize: value("NFLogSize"),
    ipipIsLayer3: value("IPIPDeviceIsL3"),
  };
}
