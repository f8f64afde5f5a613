// What a node needs before the first packet: forwarding on, accounting on, devices of features that are off gone.
import { hasErrno, type RouteKernel, runTool, setSysctl, type Sysctls } from "../kernel/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { replaceFile } from "../lib/whole-file.ts";
import type { KernelSetting } from "./interfaces/kernel-settings.ts";
import type { DataplaneFacts, DataplaneParameters } from "./parameters.ts";
import { IPIP_DEVICE } from "./tunnels/ipip.ts";
import { VXLAN_DEVICE } from "./tunnels/vxlan.ts";
import { removeUnusedDevices, type WireguardParameters } from "./wireguard/create.ts";

const MTU_FILE = "/var/lib/calico/mtu";

export function prepareHost(options: {
  readonly parameters: WireguardParameters &
    Pick<DataplaneParameters, "IPForwarding" | "Ipv6Support" | "RequireMTUFile" | "IpInIpEnabled">;
  readonly facts: DataplaneFacts;
  readonly kernel: { readonly sysctls: Sysctls; readonly routes: Pick<RouteKernel, "links" | "addresses"> };
  readonly podMtu: number;
  readonly logger: Logger;
  readonly mtuFile?: string;
  readonly loadModule?: (name: string) => void;
}): void {
  const { parameters, facts, kernel, logger, loadModule = modprobe } = options;
  // These load by themselves too late: the first SCTP packet would go untracked.
  loadModule("nf_conntrack_proto_sctp");
  if (parameters.WireguardEnabled || parameters.WireguardEnabledV6) loadModule("wireguard");
  for (const { path, value } of hostSettings(parameters))
    try {
      setSysctl(kernel.sysctls, path, value);
    } catch (error) {
      logger.warn("kernel setting could not be written", { setting: path.join("."), error: describeError(error) });
    }
  writeMtuFile(options.mtuFile ?? MTU_FILE, options.podMtu, parameters.RequireMTUFile, logger);
  const { links, addresses } = kernel.routes;
  const remove = (name: string) => {
    try {
      if (links.get(name) === undefined) return;
      links.delete(name);
      logger.info("device of a feature that is off was removed", { device: name });
    } catch (error) {
      if (!hasErrno(error, "ENODEV"))
        logger.warn("device could not be removed", { device: name, error: describeError(error) });
    }
  };
  removeUnusedDevices({ parameters, links, logger });
  if (!facts.vxlanEnabled) remove(VXLAN_DEVICE[4]);
  if (!facts.vxlanEnabledV6) remove(VXLAN_DEVICE[6]);
  // `tunl0` belongs to the kernel and cannot go; without our address nobody routes by it.
  if (!facts.ipipEnabled && parameters.IpInIpEnabled === "auto")
    try {
      const link = links.get(IPIP_DEVICE);
      if (link === undefined) return;
      for (const { address, length } of addresses.list({ version: 4, link: link.index }))
        addresses.delete({ link: link.index, address, length });
    } catch (error) {
      logger.warn("address of the IPIP device could not be removed", { error: describeError(error) });
    }
}

/** The host's own settings; one the kernel does not have was said at the start. */
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
  void runTool("modprobe", [module], "", 10_000).catch(() => {}); // built in, or not there: both are fine
}

/** Read by the CNI plugin. */
function writeMtuFile(path: string, mtu: number, isRequired: boolean, logger: Logger): void {
  try {
    replaceFile(path, `${mtu}`);
  } catch (error) {
    if (isRequired) throw error;
    logger.warn("pod MTU could not be written to a file", { path, error: describeError(error) });
  }
}
