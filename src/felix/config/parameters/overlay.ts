// Tunnels, WireGuard, flow logs.
// Columns: type, default, meaning, flags (L local only, D a bad value is fatal, N refuses `none`, ! applied live).
import { row } from "../parameter.ts";
import { choice, flag, integer, interfaceName, optionalFlag, seconds, text } from "../value-types.ts";

export const overlayParameters = {
  // --- Overlay and WireGuard ---
  VXLANEnabled: row(optionalFlag, "", "force; unset = from pools"),
  VXLANPort: row(integer(), "4789", "UDP port"),
  VXLANVNI: row(integer(), "4096", "VNI"),
  VXLANMTU: row(integer(), "0", "0 = auto"),
  VXLANMTUV6: row(integer(), "0", "0 = auto"),
  IpInIpEnabled: row(optionalFlag, "", "force; unset = from pools"),
  IpInIpMtu: row(integer(), "0", "0 = auto"),
  WireguardEnabled: row(flag, "false", "v4"),
  WireguardEnabledV6: row(flag, "false", "v6"),
  WireguardListeningPort: row(integer(), "51820", "v4"),
  WireguardListeningPortV6: row(integer(), "51821", "v6"),
  WireguardRoutingRulePriority: row(integer(), "99", "ip rule prio"),
  WireguardInterfaceName: row(interfaceName, "wireguard.cali", "v4 device", "N"),
  WireguardInterfaceNameV6: row(interfaceName, "wg-v6.cali", "v6 device", "N"),
  WireguardMTU: row(integer(), "0", "0 = auto"),
  WireguardMTUV6: row(integer(), "0", "0 = auto"),
  WireguardHostEncryptionEnabled: row(flag, "false", "host-host too"),
  WireguardPersistentKeepAlive: row(seconds, "0", "0 off"),
  WireguardThreadingEnabled: row(flag, "false", "threaded NAPI"),
  // --- Flow logs ---
  FlowLogsFlushInterval: row(seconds, "300", "export period"),
  FlowLogsCollectorDebugTrace: row(flag, "false", "verbose"),
  FlowLogsGoldmaneServer: row(text, "", "set → collector on"),
  FlowLogsLocalReporter: row(choice("Enabled", "Disabled"), "Disabled", "unix socket reporter"),
  FlowLogsPolicyEvaluationMode: row(choice("None", "Continuous"), "Continuous", "re-evaluate pending policy"),
} as const;
