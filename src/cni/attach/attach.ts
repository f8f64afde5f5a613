// Creates the pod's interface for addresses that were assigned, and the result that ADD prints.
import { type NetworkNamespace, openRtnetlink, removeLink, type Rtnetlink } from "../../kernel/index.ts";
import { interfaceAlias } from "../../model/index.ts";
import { closeUntilProgrammed } from "./close-until-programmed.ts";
import type { CniContext } from "../context.ts";
import { foreignDataplane, isForeign } from "../request/dataplane-options.ts";
import { Wire, type WireRequest } from "./veth.ts";
import type { StoredEndpoint } from "./endpoint.ts";
import { chooseInterface, removePreviousInterface } from "./choose-interface.ts";
import type { Assigned } from "../ipam/pool-addresses.ts";
import { type CniResult, hostNetwork } from "../request/result.ts";
import type { Undo } from "./undo.ts";
import type { MadeInterface, Workload } from "./workload.ts";

export interface AttachPlan {
  /** Name of the host interface. Another one is created if another workload has created this one meanwhile. */
  readonly hostName: string;
  readonly mtu: number;
  /** By default the kernel chooses one. */
  readonly hwAddr: string | undefined;
  readonly assigned: Assigned;
  readonly existing: StoredEndpoint | undefined;
  readonly workload: Workload;
}

export async function attach(context: CniContext, undo: Undo, plan: AttachPlan): Promise<MadeInterface> {
  const { conf, log, mark } = context;
  const { assigned, workload } = plan;
  const foreign = foreignDataplane(conf);
  if (foreign !== undefined) return (await import("./attach-by-grpc.ts")).attachForeign(context, undo, plan, foreign);
  using netns = context.openNetns();
  using host = openRtnetlink();
  const wanted = wireRequest(context, plan, netns);
  await closeUntilProgrammed(context);
  await removePreviousInterface(context, plan.existing?.endpoint, plan.hostName);
  // An interface of that name served the pod's last container and is replaced. It is checked again, because another
  // workload may have created it since the readiness check.
  using wire = (await Wire.make(host, wanted, log)) ?? (await replaceInterface(context, host, wanted));
  const { hostName } = wire.request;
  undo.add(() => removeLink(hostName));
  mark("wire made");
  const networks = assigned.ips.map((ip) => hostNetwork(ip.address));
  await wire.addAddresses({
    addresses: networks,
    routes: workload.routes,
    hostRoutes: assigned.isStillElsewhere !== true,
    allowIpForwarding: conf.allowIpForwarding,
  });
  mark("wire up");
  return { hostName, mac: wire.mac, networks };
}

async function replaceInterface(context: CniContext, host: Rtnetlink, wanted: WireRequest): Promise<Wire> {
  const { name, replaces } = await chooseInterface(context);
  return Wire.replace(host, { ...wanted, hostName: name }, context.log, replaces);
}

function wireRequest(context: CniContext, plan: AttachPlan, netns: NetworkNamespace): WireRequest {
  const { conf, identity, request } = context;
  const { orchestrator, containerId, namespace, pod: name } = identity;
  const pod = orchestrator === "k8s" ? { pod: { namespace, name } } : {};
  const alias = interfaceAlias({ network: conf.name, containerId, ...pod });
  return {
    netns,
    ifName: request.ifName,
    hostName: plan.hostName,
    mtu: plan.mtu,
    queues: conf.numQueues,
    deviceType: conf.deviceType === "netkit" ? "netkit" : "veth",
    hwAddr: plan.hwAddr,
    alias,
  };
}

/**
 * The pod's own interface is part of the result if the version of the specification has a field for its MTU and there is
 * an MTU to report. Otherwise the result has Calico's short form: the host's interface and the addresses.
 */
export function resultFor(
  { request, conf }: CniContext,
  made: Omit<MadeInterface, "networks"> & { readonly mtu: number; readonly assigned: CniResult },
): CniResult {
  const { hostName, mac, mtu, assigned } = made;
  // A dataplane of another vendor decides itself how the pod has its addresses.
  const ips = assigned.ips.map(({ address }) => ({ address: isForeign(conf) ? address : hostNetwork(address) }));
  const isFull = request.cniVersion === "1.1.0" || (request.cniVersion === "1.0.0" && mtu > 0);
  // Routes of another IPAM plugin are passed on. Those of Calico's only name the block, which the short form does not have.
  const isOurs = conf.ipam["type"] === "calico-ipam";
  const dns = assigned.dns === undefined ? {} : { dns: assigned.dns };
  if (!isFull) return { interfaces: [{ name: hostName }], ips, routes: isOurs ? [] : assigned.routes, ...dns };
  const pod = { name: request.ifName, mac, ...(mtu > 0 ? { mtu } : {}), sandbox: request.netns };
  return {
    interfaces: [{ name: hostName }, pod],
    ips: ips.map((ip) => ({ ...ip, interface: 1 })),
    routes: isOurs ? assigned.routes.map(({ destination }) => ({ destination })) : assigned.routes,
    ...dns,
  };
}
