// Takes everything of ours out of the kernel and nothing else: for a host that leaves the cluster. Workloads lose their
// interfaces before the rules go, so that none is ever reachable without its policy.
import { GUARD_TABLE, isGone, type Link, Nft, openRouteKernel, type Route, type RouteKernel } from "../kernel/index.ts";
import { delay } from "../lib/retry.ts";
import type { Logger } from "../lib/log.ts";
import { REDIRECT_PREFIX } from "./managers/bandwidth-limits.ts";
import { hasArpTables } from "./nft/probe.ts";
import { allPlaces } from "./open-kernel.ts";
import { type DataplaneParameters, rulesConfig } from "./parameters.ts";
import { EXCLUSIVE_PROTOCOL, exclusiveProtocol } from "./routes/ownership.ts";
import { ARP_TABLE } from "./rule-planes.ts";
import { Sweeper } from "./sweeper.ts";
import { IPIP_DEVICE } from "./tunnels/ipip.ts";
import { VXLAN_DEVICE } from "./tunnels/vxlan.ts";

export interface RemovalOptions {
  readonly parameters: DataplaneParameters & { readonly WireguardRoutingRulePriority: number };
  readonly logger: Logger;
  /** Routes of BIRD go too; not where another BIRD than ours runs on the host. */
  readonly withBird: boolean;
}

const RTPROT_BIRD = 12;
/** `default`, `main` and `local` come after. */
const FIRST_KERNEL_TABLE = 253;
const SWEEP_ATTEMPTS = 100;
const SWEEP_PAUSE_MS = 100;

export async function removeDataplane(options: RemovalOptions, signal: AbortSignal): Promise<void> {
  using kernel = openRouteKernel();
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
  const sweeper = new Sweeper(allPlaces(nft), rulesConfig(parameters, facts, "nftables"), logger);
  // Sets can only go once no rule uses them, and a few at a time.
  for (let attempt = 0; (await sweeper.sweep(signal)) !== undefined; attempt++) {
    if (attempt >= SWEEP_ATTEMPTS) throw new Error("IP sets of ours are still in use by rules of others");
    await delay(SWEEP_PAUSE_MS, signal);
  }
  const tables = [...(hasArpTables(nft) ? [ARP_TABLE] : []), GUARD_TABLE];
  for (const table of tables)
    if (nft.tables(table.family).some(({ name }) => name === table.name)) nft.commit([{ op: "deleteTable", table }]);
  logger.info("rules and sets are gone");
}

/** By kind and name: a workload's interface begins with our prefix. */
function isOurs(link: Link, parameters: DataplaneParameters): boolean {
  const { name, kind } = link;
  const tunnels = [VXLAN_DEVICE[4], VXLAN_DEVICE[6]];
  if (kind === "vxlan") return tunnels.includes(name);
  if (kind === "wireguard")
    return [parameters.WireguardInterfaceName, parameters.WireguardInterfaceNameV6].includes(name);
  if (kind === "ifb") return name.startsWith(REDIRECT_PREFIX);
  return kind === "veth" && parameters.InterfacePrefix.some((prefix) => prefix !== "" && name.startsWith(prefix));
}

function removeLinks(kernel: RouteKernel, { parameters, logger }: RemovalOptions): void {
  const { links, addresses } = kernel;
  for (const link of links.list()) {
    if (!isOurs(link, parameters)) continue;
    orGone(() => links.delete(link.name));
    logger.info("a device is gone", { device: link.name });
  }
  // The kernel's own, which cannot go; without address and down nobody notices it.
  const tunnel = links.get(IPIP_DEVICE);
  if (tunnel === undefined || tunnel.kind !== "ipip") return;
  const found = addresses.list({ version: 4, link: tunnel.index });
  for (const { address, length } of found) orGone(() => addresses.delete({ link: tunnel.index, address, length }));
  if (found.length > 0) links.set(IPIP_DEVICE, { up: false });
}

function removeRoutes(kernel: RouteKernel, { parameters, logger, withBird }: RemovalOptions): void {
  const ours = new Set([EXCLUSIVE_PROTOCOL, exclusiveProtocol(parameters.DeviceRouteProtocol)]);
  if (withBird) ours.add(RTPROT_BIRD);
  for (const version of [4, 6] as const) {
    const found = kernel.routes.list({ version }).filter(({ protocol }) => ours.has(protocol));
    for (const route of found) removeRoute(kernel, route);
    if (found.length > 0) logger.info("routes are gone", { ipVersion: version, count: found.length });
  }
}

function removeRoute(kernel: RouteKernel, route: Route): void {
  orGone(() => kernel.routes.delete(route));
}

/** The rule that sends encrypted traffic to a table of its own, and that table. */
function removeRules(kernel: RouteKernel, { parameters, logger }: RemovalOptions): void {
  for (const version of [4, 6] as const)
    for (const rule of kernel.rules.list(version)) {
      const { priority, mark, table } = rule;
      if (priority !== parameters.WireguardRoutingRulePriority || mark === undefined || table === undefined) continue;
      const isOurMark = [parameters.IptablesMarkMask, parameters.NftablesMarkMask].some(
        (mask) => (mark.mask & ~mask) >>> 0 === 0,
      );
      if (!isOurMark || table >= FIRST_KERNEL_TABLE) continue;
      orGone(() => kernel.rules.delete(rule));
      for (const route of kernel.routes.list({ version, table })) removeRoute(kernel, route);
      logger.info("a routing rule is gone", { priority, table });
    }
}

function orGone(remove: () => void): void {
  try {
    remove();
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}
