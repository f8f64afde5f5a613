// Checks whether the kernel has a module: loaded, built in, loadable, or enabled in its configuration.
import { existsSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

export interface ModuleNeed {
  /** One of these is sufficient. */
  readonly names: readonly string[];
  readonly optional: boolean;
  /** Needed only for iptables rules, not if policy is programmed with nf_tables. */
  readonly onlyIptables: boolean;
}

const need = (names: string, optional = false): ModuleNeed => ({
  names: names.split("|"),
  optional,
  onlyIptables: !names.startsWith("nf_"),
});

export const NEEDS: readonly ModuleNeed[] = [
  need("ip_set"),
  need("ip_tables"),
  need("ipt_ipvs|xt_ipvs"),
  need("vfio-pci"),
  need("ipt_REJECT|xt_REJECT"),
  need("xt_rpfilter|ipt_rpfilter"),
  need("nf_conntrack_netlink"),
  need("xt_addrtype"),
  need("xt_conntrack"),
  need("xt_mark"),
  need("xt_multiport"),
  need("xt_set|ipt_set"),
  need("ip6_tables", true),
  need("nf_tables", true),
  need("xt_bpf", true),
  need("xt_u32", true),
];

export interface KernelFiles {
  readonly release: string;
  readonly exists: (path: string) => boolean;
  /** Returns undefined if the file does not exist. */
  readonly read: (path: string) => string | undefined;
}

export const kernelFiles = (release: string): KernelFiles => ({
  release,
  exists: existsSync,
  read: (path) => {
    try {
      const bytes = readFileSync(path);
      return (path.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString();
    } catch {
      return undefined;
    }
  },
});

/** The usual places of a kernel's configuration. */
const configPaths = (release: string): readonly string[] => [
  "/proc/config.gz",
  `/boot/config-${release}`,
  `/usr/src/linux-${release}/.config`,
  "/usr/src/linux/.config",
  `/lib/modules/${release}/config`,
];

/** Returns a function that checks for one module. The files are read once. */
export function moduleFinder(files: KernelFiles, configFile?: string): (name: string) => boolean {
  const folder = `/lib/modules/${files.release}`;
  const dependencies = files.read(`${folder}/modules.dep`) ?? "";
  const builtIn = files.read(`${folder}/modules.builtin`) ?? "";
  const loaded = files.read("/proc/modules") ?? "";
  const paths = configFile === undefined ? configPaths(files.release) : [configFile];
  const config = paths.map(files.read).find((text) => text !== undefined) ?? "";
  return (name) => {
    const either = name.replaceAll(/[-_]/g, "[-_]");
    return (
      files.exists(`/sys/module/${name.replaceAll("-", "_")}`) ||
      new RegExp(`(^|/)${either}\\.ko(\\.\\w+)?:?(\\s|$)`, "m").test(dependencies) ||
      new RegExp(`(^|/)${either}\\.ko(\\.\\w+)?\\s*$`, "m").test(builtIn) ||
      new RegExp(`^${either}\\s`, "m").test(loaded) ||
      new RegExp(`^CONFIG_\\w*${configName(name)}=[ym]$`, "m").test(config)
    );
  };
}

/** `xt_rpfilter` is `NETFILTER_XT_MATCH_RPFILTER`, `ip_set` is `IP_SET`, `ipt_REJECT` is `IP_NF_TARGET_REJECT`. */
const configName = (name: string): string => {
  const upper = name.toUpperCase().replaceAll("-", "_");
  const short = /^(?:XT|IPT)_(.+)$/.exec(upper)?.[1];
  return short === undefined ? upper : `(?:XT_MATCH_|XT_|IP_NF_TARGET_|IP_NF_MATCH_|XT_TARGET_)${short}`;
};

/** Whether the kernel is 2.6.24 or later. The release may have a suffix after the numbers. */
export function isKernelNewEnough(release: string): boolean {
  const [major = 0, minor = 0, patch = 0] = release.split(/[.-]/).map((part) => Number.parseInt(part, 10) || 0);
  return major > 2 || (major === 2 && (minor > 6 || (minor === 6 && patch >= 24)));
}
