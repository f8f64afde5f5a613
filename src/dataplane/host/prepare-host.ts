// Prepares the host at start: loads modules, sets sysctls, writes the MTU file, and removes devices of disabled features.
import { hasErrno, type Rtnetlink, runTool, setSysctl, type Sysctls } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { replaceFile } from "../../lib/files/replace-file.ts";
import type { KernelSetting } from "../interfaces/kernel-settings.ts";
import type { DataplaneFacts, DataplaneParameters } from "../parameters.ts";
import { IPIP_DEVICE } from "../tunnels/ipip.ts";
import { VXLAN_DEVICE } from "../tunnels/vxlan.ts";
import { removeUnusedDevices, type WireguardParameters } from "../wireguard/encryption.ts";

const MTU_FILE = "/var/lib/calico/mtu";

export function prepareHost(options: {
  readonly parameters: WireguardParameters &
    Pick<DataplaneParameters, "IPForwarding" | "Ipv6Support" | "RequireMTUFile" | "IpInIpEnabled">;
  readonly facts: DataplaneFacts;
  readonly kernel: { readonly sysctls: Sysctls; readonly routes: Pick<Rtnetlink, "links" | "addresses"> };
  readonly podMtu: number;
  readonly logger: Logger;
  readonly mtuFile?: string;
  readonly loadModule?: (name: string) => void;
}): void {
  const { parameters, facts, kernel, logger, loadModule = modprobe } = options;
  // Not loaded automatically before the first SCTP packet, which would not be tracked then.
  loadModule("nf_conntrack_proto_sctp");
  if (parameters.WireguardEnabled || parameters.WireguardEnabledV6) loadModule("wireguard");
  for (const { path, value } of hostSettings(parameters))
    try {
      setSysctl(kernel.sysctls, path, value);
    } catch (error) {
      logger.warn("setting a sysctl failed", { setting: path.join("."), error: describeError(error) });
    }
  writeMtuFile(options.mtuFile ?? MTU_FILE, options.podMtu, parameters.RequireMTUFile, logger);
  const { links, addresses } = kernel.routes;
  const remove = (name: string) => {
    try {
      if (links.get(name) === undefined) return;
      links.delete(name);
      logger.info("removed the device of a disabled feature", { device: name });
    } catch (error) {
      if (!hasErrno(error, "ENODEV"))
        logger.warn("removing a device failed", { device: name, error: describeError(error) });
    }
  };
  removeUnusedDevices({ parameters, links, logger });
  if (!facts.vxlanEnabled) remove(VXLAN_DEVICE[4]);
  if (!facts.vxlanEnabledV6) remove(VXLAN_DEVICE[6]);
  // `tunl0` belongs to the kernel and cannot be deleted. Without an address, it is not used for routing.
  if (!facts.ipipEnabled && parameters.IpInIpEnabled === "auto")
    try {
      const link = links.get(IPIP_DEVICE);
      if (link === undefined) return;
      for (const { address, length } of addresses.list({ version: 4, link: link.index }))
        addresses.delete({ link: link.index, address, length });
    } catch (error) {
      logger.warn("removing the address of the IPIP device failed", { error: describeError(error) });
    }
}

/** The sysctls of the host. Missing ones were logged at start. */
export function hostSettings(parameters: Pick<DataplaneParameters, "IPForwarding" | "Ipv6Support">): KernelSetting[] {
  const settings: KernelSetting[] = [];
  if (parameters.IPForwarding !== "Disabled") {
    settings.push({ path: ["net", "ipv4", "ip_forward"], value: 1, isOptional: true });
    if (parameters.Ipv6Support)
      settings.push({ path: ["net", "ipv6", "conf", "all", "forwarding"], value: 1, isOptional: true });
  }
  return [...settings, { path: ["net", "netfilter", "nf_conntrack_acct"], value: 1, isOptional: true }];
}

function modprobe(module: string): void {
  void runTool("modprobe", [module], "", 10_000).catch(() => {}); // built into the kernel, or not available
}

/** The CNI plugin reads the file. */
function writeMtuFile(path: string, mtu: number, isRequired: boolean, logger: Logger): void {
  try {
    replaceFile(path, `${mtu}`);
  } catch (error) {
    if (isRequired) throw error;
    logger.warn("writing the MTU file failed", { path, error: describeError(error) });
  }
}
