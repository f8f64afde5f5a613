// Checks that involve several settings.
import { isOnAzure, isOpenStack } from "../../dataplane/index.ts";
import { FELIX_SETTINGS, type FelixConfig, type FelixSettingName } from "../../model/index.ts";
import { ConfigError, type ResolvedConfig } from "./engine.ts";

/** Throws a ConfigError if a setting requires another one that is missing. */
export function checkConfig({ config }: Pick<ResolvedConfig, "config">): void {
  if (config.FelixHostname === "") throw new ConfigError("FelixHostname is empty and the host has no name");
  const isEtcd = config.DatastoreType === "etcdv3";
  if (isEtcd && config.EtcdEndpoints.length === 0 && (config.EtcdScheme === "" || config.EtcdAddr === ""))
    throw new ConfigError("DatastoreType is etcdv3: set EtcdEndpoints, or EtcdScheme and EtcdAddr");
  const { TyphaKeyFile: key, TyphaCertFile: cert, TyphaCAFile: ca, TyphaCN: cn, TyphaURISAN: san } = config;
  const anyTls = [key, cert, ca, cn, san].some((value) => value !== "");
  if (anyTls && (key === "" || cert === "" || ca === "" || (cn === "" && san === "")))
    throw new ConfigError(
      "Typha with TLS needs TyphaKeyFile, TyphaCertFile, TyphaCAFile and one of TyphaCN and TyphaURISAN",
    );
}

/**
 * The changed settings for which Felix must restart. Every node that starts may add a property to ClusterType, so a
 * change of it is applied live as in Calico, except if rules or MTU depend on it; Calico keeps the old ones then.
 */
export function settingsThatRestart(
  changed: ReadonlySet<FelixSettingName>,
  before: FelixConfig,
  after: FelixConfig,
): readonly FelixSettingName[] {
  const affectsDataplane = isOpenStack(before) !== isOpenStack(after) || isOnAzure(before) !== isOnAzure(after);
  return [...changed].filter((name) => !FELIX_SETTINGS[name].isLive || (name === "ClusterType" && affectsDataplane));
}

/** Settings that the eBPF dataplane overrides. */
export function bpfOverrides(config: FelixConfig, kernelSupportsBpf: boolean): Record<string, string> {
  if (!config.BPFEnabled) return {};
  if (!kernelSupportsBpf) return { BPFEnabled: "false" };
  return {
    BPFConntrackCleanupMode: "Userspace",
    ...(config.BPFRedirectToPeer === "L2Only" && { BPFRedirectToPeer: "Enabled" }),
    ...(config.IPForwarding === "Disabled" && config.BPFEnforceRPF !== "Disabled" && { IPForwarding: "Enabled" }),
  };
}

/** Whether Felix programs this host. In a cluster of another variant, it only reads settings. */
export const isLeader = (config: Pick<FelixConfig, "Variant">): boolean => config.Variant === "Calico";
