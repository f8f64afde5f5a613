// The steps both kinds of ADD share: wire and addresses side by side, endpoint, result, and the way back.
import { type NetworkNamespace, openRouteKernel, removeLink } from "../kernel/index.ts";
import type { IpNetwork } from "../lib/ip.ts";
import type { Booking } from "./booking.ts";
import type { CniContext } from "./context.ts";
import { type AddressRequest, Wire, type WireRequest } from "./datapath.ts";
import { deleteEndpoint, type EndpointDraft, writeEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { hostInterfaceName } from "./identity.ts";
import { ipamDel } from "./ipam-delegation.ts";
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

export interface AttachPlan extends Omit<AddressRequest, "addresses" | "allowIpForwarding"> {
  readonly mtu: number;
  readonly hwAddr?: string;
  /** Addresses on their way. */
  readonly booking: Promise<Booking>;
}

/** Makes the wire while the addresses are being assigned, and joins the two. */
export async function attach(context: CniContext, undo: Undo, plan: AttachPlan): Promise<Attached> {
  const { conf } = context;
  const hostName = hostNameOf(context);
  using netns = context.openNetns();
  using host = openRouteKernel();
  using wires = new DisposableStack();
  const wanted = wireRequest(context, plan, hostName, netns);
  const keep = (wire: Wire): Wire => {
    undo.push(() => removeLink(hostName));
    return wires.use(wire);
  };
  // A wire of that name still serves the pod's last container: it is only replaced once there is an address.
  const early = await Wire.make(host, wanted, context.log);
  let wire = early && keep(early);
  context.mark("wire made");
  const { assigned } = await plan.booking;
  context.mark("address assigned");
  wire ??= keep(await Wire.replace(host, wanted, context.log));
  const networks = assigned.ips.map((ip) => hostNetwork(ip.address));
  const { routes, hostRoutes } = plan;
  await wire.addAddresses({ addresses: networks, routes, hostRoutes, allowIpForwarding: conf.allowIpForwarding });
  context.mark("wire up");
  return { hostName, mac: wire.mac, assigned, networks };
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
  if (!booking.hasProfile) await createProfile(store, conf.name, identity.orchestrator, now);
  const before = booking.stored ?? booking.existing;
  const isStored = booking.stored?.endpoint.spec.mac === draft.spec.mac;
  if (!isStored) await writeEndpoint(store, draft, before, now);
  context.mark("endpoint stored");
}

/** What takes back a step that was done. */
export type Undo = (() => Promise<void>)[];

/** Runs the steps of an ADD; when one fails, those before it are taken back, and so are the addresses. */
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
    const booked = await booking.then(
      ({ stored }) => ({ stored }),
      (reason: unknown) => ({ reason }),
    );
    if (!("reason" in booked)) {
      const signal = AbortSignal.timeout(rollbackMs(context.conf));
      const late = onStore(context, timedStore(context.untimed ?? context.store, signal));
      undo.unshift(() => ipamDel(late, signal));
      const { stored } = booked;
      if (stored !== undefined) undo.unshift(async () => void (await deleteEndpoint(late.store, stored)));
    }
    for (const step of undo)
      try {
        await step();
      } catch (second) {
        context.log.error("Could not undo all of a failed ADD; its DEL will", { error: second });
      }
    throw "reason" in booked ? booked.reason : error;
  }
}

const rollbackMs = (conf: NetConf): number => conf.datastoreTimeoutSeconds * ROLLBACK_SHARE * 1000;

export function checkDataplane(options: Readonly<Record<string, unknown>> | undefined): void {
  const type = options?.["type"];
  if (type === undefined) return;
  if (type !== "grpc") throw new CniError(INTERNAL, `invalid dataplane type: ${String(type)}`);
  if (typeof options?.["socket"] !== "string") throw new CniError(INTERNAL, "GRPC dataplane socket not configured");
  throw new CniError(INTERNAL, "the gRPC dataplane is not supported; remove dataplane_options");
}

/**
 * The pod's own interface is told where the version of the specification can carry its MTU and there is one to tell;
 * other consumers get the short form they always got: the host's end and the addresses.
 */
export function resultFor(
  { request, conf }: CniContext,
  made: Omit<Attached, "networks"> & { readonly mtu: number },
): CniResult {
  const { hostName, mac, mtu, assigned } = made;
  const ips = assigned.ips.map((ip) => ({ address: hostNetwork(ip.address) }));
  const isFull = request.cniVersion === "1.1.0" || (request.cniVersion === "1.0.0" && mtu > 0);
  // Routes another address manager gave are handed on; ours only names the block, which the short form never had.
  const isOurs = conf.ipam["type"] === "calico-ipam";
  if (!isFull) return { interfaces: [{ name: hostName }], ips, routes: isOurs ? [] : assigned.routes };
  const pod = { name: request.ifName, mac, ...(mtu > 0 ? { mtu } : {}), sandbox: request.netns };
  return {
    interfaces: [{ name: hostName }, pod],
    ips: ips.map((ip) => ({ ...ip, interface: 1 })),
    routes: isOurs ? assigned.routes.map(({ destination }) => ({ destination })) : assigned.routes,
  };
}
