// The steps both kinds of ADD share: wire and addresses side by side, endpoint, result, and the way back.
import { type NetworkNamespace, openRouteKernel, removeLink } from "../kernel/index.ts";
import { type IpNetwork, type IpVersion, ipVersion } from "../lib/ip.ts";
import type { Booking } from "./booking.ts";
import { closeUntilProgrammed } from "./close-until-programmed.ts";
import type { CniContext } from "./context.ts";
import { foreignDataplane, isForeign } from "./dataplane-options.ts";
import { type AddressRequest, Wire, type WireRequest } from "./datapath.ts";
import { deleteEndpointIf, type EndpointDraft, endpointEntry, storedIdentity, writeEndpoint } from "./endpoint.ts";
import { CniError, TRY_AGAIN_LATER } from "./error.ts";
import type { ForeignWorkload } from "./grpc-dataplane.ts";
import { hostInterfaceName } from "./identity.ts";
import { requireInterface } from "./interface-conflict.ts";
import { CALICO_IPAM, ipamDel } from "./ipam-delegation.ts";
import { onStore } from "./ipam-plugin.ts";
import type { NetConf } from "./net-conf.ts";
import { createProfile } from "./profile.ts";
import { type CniResult, hostNetwork } from "./result.ts";
import { timedStore } from "./timed-store.ts";
import { wireAlias } from "./wire-owner.ts";

/** Of the time the datastore may take altogether, what is kept for the way back. */
export const ROLLBACK_SHARE = 0.3;

export interface Attached {
  readonly hostName: string;
  readonly mac: string;
  readonly assigned: CniResult;
  /** The pod's addresses, each alone in its network. */
  readonly networks: readonly IpNetwork[];
}

export interface AttachPlan extends Pick<AddressRequest, "routes"> {
  readonly mtu: number;
  readonly hwAddr?: string;
  /** Addresses on their way. */
  readonly booking: Promise<Booking>;
  /** Of which families they will be; none: that is not known before they come. */
  readonly versions: readonly IpVersion[];
  /** What a dataplane that is not ours is told of the workload. */
  readonly workload: Pick<ForeignWorkload, "labels" | "annotations" | "ports">;
}

/** Makes the wire while the addresses are being assigned, and joins the two. */
export async function attach(context: CniContext, undo: Undo, plan: AttachPlan): Promise<Attached> {
  const { conf } = context;
  const foreign = foreignDataplane(conf);
  if (foreign !== undefined) return (await import("./attach-foreign.ts")).attachForeign(context, undo, plan, foreign);
  const hostName = hostNameOf(context);
  using netns = context.openNetns();
  using host = openRouteKernel();
  using wires = new DisposableStack();
  const wanted = wireRequest(context, plan, hostName, netns);
  const keep = (wire: Wire): Wire => {
    undo.push(() => removeLink(hostName));
    return wires.use(wire);
  };
  await closeUntilProgrammed(context);
  // A wire of that name still serves the pod's last container: it is only replaced once there is an address.
  const early = await Wire.make(host, wanted, context.log);
  let wire = early && keep(early);
  context.mark("wire made");
  if (plan.versions.length > 0) wire?.bringUp(plan.versions, conf.allowIpForwarding); // while the datastore answers
  const { assigned } = await plan.booking;
  context.mark("address assigned");
  if (wire === undefined) {
    const before = await requireInterface(context); // again: another workload may have made it since the gates opened
    wire = keep(await Wire.replace(host, wanted, context.log, before));
  }
  const networks = assigned.ips.map((ip) => hostNetwork(ip.address));
  await wire.addAddresses({
    addresses: networks,
    routes: plan.routes,
    hostRoutes: assigned.isStillElsewhere !== true,
    allowIpForwarding: conf.allowIpForwarding,
  });
  context.mark("wire up");
  return { hostName, mac: wire.mac, assigned, networks };
}

/** Of which families the addresses are that a network assigns, or one that is asked for by name; none when others assign. */
export function versionsOf({ conf: { ipam }, request }: CniContext): readonly IpVersion[] {
  if (ipam.type !== CALICO_IPAM) return [];
  if (request.args.ip !== undefined) return [ipVersion(request.args.ip)];
  return ([4, 6] as const).filter((version) => (version === 4 ? ipam.assignIpv4 : ipam.assignIpv6));
}

function wireRequest(context: CniContext, plan: AttachPlan, hostName: string, netns: NetworkNamespace): WireRequest {
  const { conf, identity, request } = context;
  const alias = wireAlias(conf.name, identity);
  return {
    netns,
    ifName: request.ifName,
    hostName,
    mtu: plan.mtu,
    queues: conf.numQueues,
    deviceType: conf.deviceType === "netkit" ? "netkit" : "veth",
    ...(plan.hwAddr === undefined ? {} : { hwAddr: plan.hwAddr }),
    ...(alias === undefined ? {} : { alias }),
  };
}

export const hostNameOf = ({ identity, request }: CniContext): string =>
  hostInterfaceName(identity, request.interfacePrefix);

/** Stores the endpoint, unless it was with its addresses, and, outside Kubernetes policy, the profile it names. */
export async function finish(context: CniContext, booking: Booking, draft: EndpointDraft): Promise<void> {
  const { conf, store, identity } = context;
  const now = context.now();
  const before = booking.stored ?? booking.existing;
  if (!booking.hasProfile) {
    endpointEntry(store, draft, before, now); // one that cannot be stored makes no profile either
    await createProfile(store, conf.name, identity.orchestrator, now);
  }
  const isStored = booking.stored?.endpoint.spec.mac === draft.spec.mac;
  if (!isStored) await writeEndpoint(store, draft, before, now);
  context.mark("endpoint stored");
}

/** What takes back a wire that was made. */
export type Undo = (() => Promise<void>)[];

/**
 * Runs the steps of an ADD. When one fails the wire goes, then the endpoint and the addresses: an address is free when
 * nobody has it. What cannot be undone is left to DEL, with all that was to be undone after it.
 */
export async function rollingBack<T>(
  context: CniContext,
  booking: Promise<Booking>,
  steps: (undo: Undo) => Promise<T>,
): Promise<T> {
  const undo: Undo = [];
  booking.catch(() => {}); // awaited by the steps, or below
  try {
    return await steps(undo);
  } catch (error) {
    // The addresses may still be on their way: only once they are there can they go back.
    const booked = await booking.catch((reason: unknown) => ({ reason }));
    try {
      for (const step of undo) await step();
      if (!("reason" in booked)) await giveBack(context, booked);
    } catch (second) {
      context.log.error("Could not undo all of a failed ADD; its DEL will", { error: second });
    }
    throw "reason" in booked ? booked.reason : error;
  }
}

async function giveBack(context: CniContext, { existing }: Booking): Promise<void> {
  const signal = AbortSignal.timeout(rollbackMs(context.conf));
  const late = onStore(context, timedStore(context.untimed ?? context.store, signal));
  const { containerId } = context.identity;
  await deleteEndpointIf(
    late.store,
    storedIdentity(context.identity, existing),
    ({ endpoint }) => endpoint.spec.containerID === containerId,
  );
  await ipamDel(late, signal);
}

/** The last check of an ADD. It fails, so that the ADD is undone, if nobody waits for the result any more. */
export function requireCaller({ isAwaited }: CniContext): void {
  if (isAwaited?.() === false)
    throw new CniError(TRY_AGAIN_LATER, "the plugin has disconnected before the ADD was complete; it is undone");
}

const rollbackMs = (conf: NetConf): number => conf.datastoreTimeoutSeconds * ROLLBACK_SHARE * 1000;

/**
 * The pod's own interface is told where the version of the specification can carry its MTU and there is one to tell;
 * other consumers get the short form they always got: the host's end and the addresses.
 */
export function resultFor(
  { request, conf }: CniContext,
  made: Omit<Attached, "networks"> & { readonly mtu: number },
): CniResult {
  const { hostName, mac, mtu, assigned } = made;
  // How the pod has its addresses is for those to say who made its wire: ours has each alone in its network.
  const ips = assigned.ips.map(({ address }) => ({ address: isForeign(conf) ? address : hostNetwork(address) }));
  const isFull = request.cniVersion === "1.1.0" || (request.cniVersion === "1.0.0" && mtu > 0);
  // Routes another address manager gave are handed on; ours only names the block, which the short form never had.
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
