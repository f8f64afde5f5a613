// Provides the configuration of rules for tests: the defaults, and that of recorded parameters.
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import type { RulesConfig } from "../../../src/dataplane/rules/config.ts";
import { felixDefaultOf } from "../../../src/model/index.ts";
import { plainConfig } from "../../../src/dataplane/rules/testing.ts";
import { type IpAddress, tryParseAddress } from "../../../src/lib/ip/ip.ts";

const defaultRules = plainConfig({
  failsafeIn: felixDefaultOf("FailsafeInboundHostPorts"),
  failsafeOut: felixDefaultOf("FailsafeOutboundHostPorts"),
  nodePortRanges: [{ first: 30000, last: 32767 }],
});

/** Returns the configuration of rules that corresponds to the recorded messages. */
export function recordedRules(messages: readonly DataplaneMessage[]): RulesConfig {
  const params = new Map<string, string>();
  let result = defaultRules;
  for (const message of messages) {
    if (message.type === "configUpdate")
      for (const [k, v] of Object.entries(message.config)) params.set(k.toLowerCase(), v);
    else if (message.type === "encapsulation") {
      const { ipipEnabled, vxlanEnabled, vxlanEnabledV6 } = message;
      result = { ...result, ipipEnabled, vxlanEnabled, vxlanEnabledV6 };
    }
  }
  const get = (name: string) => params.get(name.toLowerCase());
  const address = (name: string) => tryParseAddress(get(name) ?? "");
  const optional = <K extends string>(key: K, value: IpAddress | undefined) =>
    (value === undefined ? {} : { [key]: value }) as Partial<Record<K, IpAddress>>;
  const openstack = (get("ClusterType") ?? "").includes("openstack") || (get("InterfacePrefix") ?? "").includes("tap");
  return {
    ...result,
    workloadPrefixes: (get("InterfacePrefix") ?? "cali").split(","),
    ...optional("ipipTunnelAddress", address("IpInIpTunnelAddr")),
    ...optional("vxlanTunnelAddress", address("IPv4VXLANTunnelAddr")),
    ...optional("vxlanTunnelAddressV6", address("IPv6VXLANTunnelAddr")),
    ...(openstack
      ? {
          openstack: {
            metadataPort: Number(get("MetadataPort") ?? 8775),
            ...optional("metadataAddress", address("MetadataAddr")),
          },
        }
      : {}),
    ...(get("IstioAmbientMode") === "Enabled" ? { istioDscp: Number(get("IstioDSCPMark") ?? 23) } : {}),
  };
}
export const parameter = (messages: readonly DataplaneMessage[], name: string): string | undefined => {
  for (const message of messages) if (message.type === "configUpdate") return message.config[name];
  return undefined;
};
