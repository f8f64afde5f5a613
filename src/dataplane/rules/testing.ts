// For tests of rules: a configuration, and chains as iptables text.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { renderChain } from "../iptables/render.ts";
import { ALL_FEATURES } from "../iptables/rule-text.ts";
import type { RulesConfig } from "./config.ts";
import { allocateMarks } from "./marks.ts";
import type { TableName, RuleChain } from "./rule.ts";

/** The configuration of a node without optional features. */
export const plainConfig = (more: Partial<RulesConfig> = {}): RulesConfig => ({
  workloadPrefixes: ["cali"],
  marks: allocateMarks(0xffff0000, { withWireguard: false }),
  filterAllow: "accept",
  mangleAllow: "accept",
  deny: "drop",
  endpointToHost: "drop",
  failsafeIn: [],
  failsafeOut: [],
  disableConntrackInvalidCheck: false,
  allowVxlanFromWorkloads: false,
  allowIpipFromWorkloads: false,
  ipipEnabled: false,
  vxlanEnabled: false,
  vxlanEnabledV6: false,
  vxlanPort: 4789,
  wireguardEnabled: false,
  wireguardEnabledV6: false,
  wireguardInterface: "wireguard.cali",
  wireguardInterfaceV6: "wg-v6.cali",
  wireguardPort: 51820,
  wireguardPortV6: 51821,
  wireguardHostEncryption: false,
  natExcludesHosts: false,
  serviceLoop: "drop",
  logPrefix: "calico-packet",
  logBurst: 5,
  flowLogs: false,
  ipvs: false,
  nodePortRanges: [],
  ...more,
});

export const chainText = (
  chain: RuleChain,
  tableName: TableName,
  config: RulesConfig,
  version: IpVersion = 4,
): string[] => renderChain({ config, version, tableName, features: ALL_FEATURES }, chain);

/** Returns the rules of the chain with this name; empty if there is none. */
export function chainTextByName(
  chains: readonly RuleChain[],
  name: string,
  tableName: TableName,
  config: RulesConfig,
  version: IpVersion = 4,
): string[] {
  const chain = chains.find((candidate) => candidate.name === name);
  return chain === undefined ? [] : chainText(chain, tableName, config, version);
}
