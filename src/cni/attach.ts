// The steps both kinds of ADD share once the addresses are there: wire, endpoint, result, and the way back.
import { openRouteKernel, removeLink } from "../kernel/index.ts";
import type { IpNetwork } from "../lib/ip.ts";
import type { CniContext } from "./context.ts";
import { type AddressRequest, Wire } from "./datapath.ts";
import { type EndpointDraft, type StoredEndpoint, writeEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { hostInterfaceName } from "./identity.ts";
import { ipamDel } from "./ipam-delegation.ts";
import type { NetConf } from "./net-conf.ts";
import { ensureProfile } from "./profile.ts";
import { type CniResult, hostNetwork } from "./result.ts";

/** Of the time the datastore may take altogether, what is kept for the way back. */
export const ROLLBACK_SHARE = 0.3;

export interface Attached {
  readonly hostName: string;
  readonly mac: string;
}

/** Makes the wire and gives the pod its addresses. */
export async function attach(
  context: CniContext,
  undo: Undo,
  wanted: Omit<AddressRequest, "addresses" | "allowIpForwarding"> & {
    readonly mtu: number;
    readonly networks: readonly IpNetwork[];
    readonly hwAddr?: string;
  },
): Promise<Attached> {
  const { conf, identity, request } = context;
  const hostName = hostInterfaceName(identity, request.interfacePrefix);
  using netns = context.openNetns();
  using host = openRouteKernel();
  using wire = new Wire(
    host,
    {
      netns,
      ifName: request.ifName,
      hostName,
      mtu: wanted.mtu,
      queues: conf.numQueues,
      deviceType: conf.deviceType === "netkit" ? "netkit" : "veth",
      ...(wanted.hwAddr === undefined ? {} : { hwAddr: wanted.hwAddr }),
    },
    context.log,
  );
  undo.push(() => removeLink(hostName));
  await wire.addAddresses({
    addresses: wanted.networks,
    routes: wanted.routes,
    hostRoutes: wanted.hostRoutes,
    allowIpForwarding: conf.allowIpForwarding,
  });
  return { hostName, mac: wire.mac };
}

/** Stores the endpoint and, outside Kubernetes policy, the profile it names. */
export async function finish(
  context: CniContext,
  existing: StoredEndpoint | undefined,
  draft: EndpointDraft,
): Promise<void> {
  const { conf, store, identity } = context;
  const now = context.now();
  if (conf.policy.type === "") await ensureProfile(store, conf.name, identity.orchestrator, now);
  await writeEndpoint(store, draft, existing, now);
}

/** Runs the steps after the addresses were assigned; when one fails, the addresses and the wire go back. */
export async function rollingBack<T>(context: CniContext, steps: (undo: Undo) => Promise<T>): Promise<T> {
  const undo: Undo = [() => ipamDel(context, AbortSignal.timeout(rollbackMs(context.conf)))];
  try {
    return await steps(undo);
  } catch (error) {
    for (const step of undo)
      try {
        await step();
      } catch (second) {
        context.log.error("Could not undo all of a failed ADD; its DEL will", { error: second });
      }
    throw error;
  }
}
/** What takes back a step that was done. */
export type Undo = (() => Promise<void>)[];

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
  { request }: CniContext,
  made: Attached & { readonly mtu: number; readonly assigned: CniResult },
): CniResult {
  const { hostName, mac, mtu, assigned } = made;
  const ips = assigned.ips.map((ip) => ({ address: hostNetwork(ip.address) }));
  const isFull = request.cniVersion === "1.1.0" || (request.cniVersion === "1.0.0" && mtu > 0);
  if (!isFull) return { interfaces: [{ name: hostName }], ips, routes: [] };
  const pod = { name: request.ifName, mac, ...(mtu > 0 ? { mtu } : {}), sandbox: request.netns };
  return {
    interfaces: [{ name: hostName }, pod],
    ips: ips.map((ip) => ({ ...ip, interface: 1 })),
    routes: assigned.routes.map(({ destination }) => ({ destination })),
  };
}
