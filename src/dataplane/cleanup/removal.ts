// Removes everything that Calico or calico-ts programmed in the kernel, for a host that leaves the cluster. Interfaces of
// workloads are deleted before the rules, so that no workload is reachable without its policy.
import { GUARD_TABLE, isGone, type Link, Nft, openRtnetlink, type Route, type Rtnetlink } from "../../kernel/index.ts";
import { delay } from "../../lib/retry.ts";
import type { Logger } from "../../lib/log/log.ts";
import { REDIRECT_PREFIX } from "../managers/bandwidth-limits.ts";
import { hasArpTables } from "../nft/probe.ts";
import { allSweepTargets } from "../host/open-kernel.ts";
import { type DataplaneParameters, rulesConfig } from "../parameters.ts";
import { EXCLUSIVE_PROTOCOL, exclusiveProtocol } from "../routes/ownership.ts";
import { ARP_TABLE } from "../nft/arp-table.ts";
import { Sweeper } from "./sweeper.ts";
import { IPIP_DEVICE } from "../tunnels/ipip.ts";
import { VXLAN_DEVICE } from "../tunnels/vxlan.ts";

export interface RemovalOptions {
  readonly parameters: DataplaneParameters;
  readonly logger: Logger;
  /** Also remove routes of BIRD. False if a BIRD of the host itself is running. */
  readonly withBird: boolean;
}

const RTPROT_BIRD = 12;
/** Tables from here on (`default`, `main`, `local`) belong to the kernel. */
const FIRST_KERNEL_TABLE = 253;
const SWEEP_ATTEMPTS = 100;
const SWEEP_PAUSE_MS = 100;

export async function removeDataplane(options: RemovalOptions, signal: AbortSignal): Promise<void> {
  using kernel = openRtnetlink();
  removeRules(kernel, options);
  removeLinks(kernel, options);
  removeRoutes(kernel, options);
  using nft = new Nft();
  const { parameters, logger } = options;
  const facts = {
    hostname: "",
    ipipEnabled: false,
    vxlanEnabled: false,
    vxlanEnabledV6: false,
    noEncapNeeded: false,
    ipvs: false,
  };
  const sweeper = new Sweeper(allSweepTargets(nft), rulesConfig(parameters, facts, "nftables"), logger);
  // Sets can be deleted only if no rule uses them, and only a few are deleted per call.
  for (let attempt = 0; (await sweeper.sweep(signal)) !== undefined; attempt++) {
    if (attempt >= SWEEP_ATTEMPTS) throw new Error("IP sets are still used by rules of other programs");
    await delay(SWEEP_PAUSE_MS, signal);
  }
  const tables = [...(hasArpTables(nft) ? [ARP_TABLE] : []), GUARD_TABLE];
  for (const table of tables)
    if (nft.tables(table.family).some(({ name }) => name === table.name)) nft.commit([{ op: "deleteTable", table }]);
  logger.info("removed rules and IP sets");
}

/** Decides by kind and name. Interfaces of workloads start with the configured prefix. */
function isOwned(link: Link, parameters: DataplaneParameters): boolean {
  const { name, kind } = link;
  const tunnels = [VXLAN_DEVICE[4], VXLAN_DEVICE[6]];
  if (kind === "vxlan") return tunnels.includes(name);
  if (kind === "wireguard")
    return [parameters.WireguardInterfaceName, parameters.WireguardInterfaceNameV6].includes(name);
  if (kind === "ifb") return name.startsWith(REDIRECT_PREFIX);
  return kind === "veth" && parameters.InterfacePrefix.some((prefix) => prefix !== "" && name.startsWith(prefix));
}

function removeLinks(kernel: Rtnetlink, { parameters, logger }: RemovalOptions): void {
  const { links, addresses } = kernel;
  for (const link of links.list()) {
    if (!isOwned(link, parameters)) continue;
    ignoreMissing(() => links.delete(link.name));
    logger.info("removed a device", { device: link.name });
  }
  // `tunl0` belongs to the kernel and cannot be deleted: its address is removed, and it is set down.
  const tunnel = links.get(IPIP_DEVICE);
  if (tunnel === undefined || tunnel.kind !== "ipip") return;
  const found = addresses.list({ version: 4, link: tunnel.index });
  for (const { address, length } of found)
    ignoreMissing(() => addresses.delete({ link: tunnel.index, address, length }));
  if (found.length > 0) links.set(IPIP_DEVICE, { up: false });
}

function removeRoutes(kernel: Rtnetlink, { parameters, logger, withBird }: RemovalOptions): void {
  const protocols = new Set([EXCLUSIVE_PROTOCOL, exclusiveProtocol(parameters.DeviceRouteProtocol)]);
  if (withBird) protocols.add(RTPROT_BIRD);
  for (const version of [4, 6] as const) {
    const found = kernel.routes.list({ version }).filter(({ protocol }) => protocols.has(protocol));
    for (const route of found) removeRoute(kernel, route);
    if (found.length > 0) logger.info("removed routes", { ipVersion: version, count: found.length });
  }
}

function removeRoute(kernel: Rtnetlink, route: Route): void {
  ignoreMissing(() => kernel.routes.delete(route));
}

/** Removes the routing rule for WireGuard traffic and the routes of its table. */
function removeRules(kernel: Rtnetlink, { parameters, logger }: RemovalOptions): void {
  for (const version of [4, 6] as const)
    for (const rule of kernel.rules.list(version)) {
      const { priority, mark, table } = rule;
      if (priority !== parameters.WireguardRoutingRulePriority || mark === undefined || table === undefined) continue;
      const isOwnedMark = [parameters.IptablesMarkMask, parameters.NftablesMarkMask].some(
        (mask) => (mark.mask & ~mask) >>> 0 === 0,
      );
      if (!isOwnedMark || table >= FIRST_KERNEL_TABLE) continue;
      ignoreMissing(() => kernel.rules.delete(rule));
      for (const route of kernel.routes.list({ version, table })) removeRoute(kernel, route);
      logger.info("removed a routing rule", { priority, table });
    }
}

function ignoreMissing(remove: () => void): void {
  try {
    remove();
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}
