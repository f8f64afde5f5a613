// What tests of rules begin with: a configuration, and chains as the text iptables would take.
import type { IpVersion } from "../../lib/ip.ts";
import { lowerChain } from "../iptables/lower.ts";
import { ALL_FEATURES } from "../iptables/text.ts";
import type { RulesConfig } from "./config.ts";
import { allocateMarks } from "./marks.ts";
import type { Layer, RuleChain } from "./rule.ts";

/** A node with nothing switched on. */
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

export const chainText = (chain: RuleChain, layer: Layer, config: RulesConfig, version: IpVersion = 4): string[] =>
  lowerChain({ config, version, layer, features: ALL_FEATURES }, chain);

/** The chain of that name; nothing when there is none. */
export function namedText(
  chains: readonly RuleChain[],
  name: string,
  layer: Layer,
  config: RulesConfig,
  version: IpVersion = 4,
): string[] {
  const chain = chains.find((candidate) => candidate.name === name);
  return chain === undefined ? [] : chainText(chain, layer, config, version);
}
