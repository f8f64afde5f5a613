// Creates the pod's interface for the assigned addresses, and the result that ADD prints.
import { type NetworkNamespace, openRtnetlink, removeLink, type Rtnetlink } from "../../kernel/index.ts";
import { interfaceAlias } from "../../model/index.ts";
import { closeUntilProgrammed } from "./close-until-programmed.ts";
import type { CniContext } from "../context.ts";
import { grpcDataplane, usesGrpcDataplane } from "../request/dataplane-options.ts";
import { InterfacePair, type InterfacePairRequest } from "./interface-pair.ts";
import type { StoredEndpoint } from "./endpoint.ts";
import { chooseInterface, removePreviousInterface } from "./choose-interface.ts";
import type { Assigned } from "../ipam/pool-addresses.ts";
import { type CniResult, hostNetwork } from "../request/result.ts";
import type { Undo } from "./undo.ts";
import type { AttachedInterface, Workload } from "./workload.ts";

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

export async function attach(context: CniContext, undo: Undo, plan: AttachPlan): Promise<AttachedInterface> {
  const { conf, log, mark } = context;
  const { assigned, workload } = plan;
  const grpc = grpcDataplane(conf);
  if (grpc !== undefined) return (await import("./attach-by-grpc.ts")).attachByGrpc(context, undo, plan, grpc);
  using netns = context.openNetns();
  using host = openRtnetlink();
  const pairRequest = interfacePairRequest(context, plan, netns);
  await closeUntilProgrammed(context);
  await removePreviousInterface(context, plan.existing?.endpoint, plan.hostName);
  // An existing interface of that name belonged to the pod's previous container and is replaced. Its owner is checked again,
  // because another workload may have created it since the readiness check.
  using pair =
    (await InterfacePair.create(host, pairRequest, log)) ?? (await replaceInterface(context, host, pairRequest));
  const { hostName } = pair.request;
  undo.add(() => removeLink(hostName));
  mark("interface created");
  const networks = assigned.ips.map((ip) => hostNetwork(ip.address));
  await pair.addAddresses({
    addresses: networks,
    routes: workload.routes,
    hostRoutes: assigned.isMigrating !== true,
    allowIpForwarding: conf.allowIpForwarding,
  });
  mark("interface up");
  return { hostName, mac: pair.mac, networks };
}

async function replaceInterface(
  context: CniContext,
  host: Rtnetlink,
  request: InterfacePairRequest,
): Promise<InterfacePair> {
  const { name, replaces } = await chooseInterface(context);
  return InterfacePair.replace(host, { ...request, hostName: name }, context.log, replaces);
}

function interfacePairRequest(context: CniContext, plan: AttachPlan, netns: NetworkNamespace): InterfacePairRequest {
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
 * Returns the result of ADD. It contains the pod's interface for CNI 1.1.0, and for 1.0.0 if an MTU is configured. Otherwise it
 * has Calico's short form: the host's interface and the addresses.
 */
export function resultFor(
  { request, conf }: CniContext,
  attached: Omit<AttachedInterface, "networks"> & { readonly mtu: number; readonly assigned: CniResult },
): CniResult {
  const { hostName, mac, mtu, assigned } = attached;
  // A gRPC dataplane decides itself which prefix lengths the pod's addresses have.
  const ips = assigned.ips.map(({ address }) => ({
    address: usesGrpcDataplane(conf) ? address : hostNetwork(address),
  }));
  const isFull = request.cniVersion === "1.1.0" || (request.cniVersion === "1.0.0" && mtu > 0);
  // Routes of another IPAM plugin are passed on. Those of calico-ipam only name the block, which the short form leaves out.
  const isCalicoIpam = conf.ipam["type"] === "calico-ipam";
  const dns = assigned.dns === undefined ? {} : { dns: assigned.dns };
  if (!isFull) return { interfaces: [{ name: hostName }], ips, routes: isCalicoIpam ? [] : assigned.routes, ...dns };
  const pod = { name: request.ifName, mac, ...(mtu > 0 ? { mtu } : {}), sandbox: request.netns };
  return {
    interfaces: [{ name: hostName }, pod],
    ips: ips.map((ip) => ({ ...ip, interface: 1 })),
    routes: isCalicoIpam ? assigned.routes.map(({ destination }) => ({ destination })) : assigned.routes,
    ...dns,
  };
}
