// What must fit together, and what follows from several settings at once.
import type { FelixConfig } from "./parameters.ts";
import { ConfigError, type ResolvedConfig } from "./engine.ts";

/** Throws a ConfigError for settings that contradict or miss one another. */
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

/** Settings that the eBPF dataplane forces, whatever the layers say. */
export function bpfOverrides(config: FelixConfig, kernelSupportsBpf: boolean): Record<string, string> {
  if (!config.BPFEnabled) return {};
  if (!kernelSupportsBpf) return { BPFEnabled: "false" };
  return {
    BPFConntrackCleanupMode: "Userspace",
    ...(config.BPFRedirectToPeer === "L2Only" && { BPFRedirectToPeer: "Enabled" }),
    ...(config.IPForwarding === "Disabled" && config.BPFEnforceRPF !== "Disabled" && { IPForwarding: "Enabled" }),
  };
}

/** Only a cluster whose variant is Calico's own is calculated for; others are watched for settings alone. */
export const isLeader = (config: Pick<FelixConfig, "Variant">): boolean => config.Variant === "Calico";
