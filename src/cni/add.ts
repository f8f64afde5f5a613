// ADD: gates, addresses, wire, endpoint. What was taken is given back when a later step fails; a kill at any point leaves
// only what DEL finds by the container's ID and interface.
//
// Nothing is written before the gates are open, but IPAM reads ahead while they are being checked, and the wire is made
// while IPAM works: round trips to the datastore are most of what a pod waits for. `booking.ts` has them in one place.
import { addKubernetes } from "./add-kubernetes.ts";
import {
  type Attached,
  attach,
  finish,
  hostNameOf,
  requireCaller,
  resultFor,
  rollingBack,
  versionsOf,
} from "./attach.ts";
import { book, canStoreEarly, randomMac } from "./booking.ts";
import type { CniContext } from "./context.ts";
import { foreignDataplane } from "./dataplane-options.ts";
import { defaultRoutes } from "./datapath.ts";
import type { EndpointDraft, StoredEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { behindGate } from "./gated-store.ts";
import { ipamAdd, requireAddresses } from "./ipam-delegation.ts";
import { releaseSurplus } from "./ipam-plugin.ts";
import { mesosLabels } from "./mesos-labels.ts";
import { linkMtu } from "./node-files.ts";
import { baseLabels } from "./pod.ts";
import { waitForPolicy } from "./policy-wait.ts";
import { cidrText, type CniResult } from "./result.ts";

export async function add(context: CniContext): Promise<CniResult> {
  const { conf, identity } = context;
  const mtu = linkMtu(conf);
  if (!["", "veth", "netkit"].includes(conf.deviceType))
    throw new CniError(INTERNAL, `device_type ${JSON.stringify(conf.deviceType)}: want veth or netkit`);
  if (conf.policySetupTimeoutSeconds < 0 && identity.orchestrator === "k8s")
    throw new CniError(INTERNAL, "policy_setup_timeout_seconds: want 0 (never wait) or more");
  return identity.orchestrator === "k8s" ? addKubernetes(context, mtu) : addContainer(context, mtu);
}

/** The container has its addresses already. */
class AlreadyAttached extends Error {
  constructor(readonly existing: StoredEndpoint) {
    super("the container has its addresses already");
  }
}

async function addContainer(context: CniContext, mtu: number): Promise<CniResult> {
  const { conf, identity } = context;
  const { labels, namespace } = mesosLabels(conf);
  const here = namespace === undefined ? context : { ...context, identity: { ...identity, namespace } };
  const hwAddr = canStoreEarly(context) ? randomMac() : undefined;
  const draftOf = (made: Pick<Attached, "hostName" | "mac" | "networks">): EndpointDraft => ({
    identity: here.identity,
    labels: { ...labels, ...baseLabels(here.identity) },
    spec: {
      ipNetworks: made.networks.map(cidrText),
      profiles: [conf.name],
      interfaceName: made.hostName,
      mac: made.mac,
    },
  });
  const { begun, booking } = book(here, async (there, existing, storeWith) => {
    if (conf.features.ipAddrsNoIpam) {
      await existing;
      throw new CniError(INTERNAL, "requested feature is not supported for this runtime: ip_addrs_no_ipam");
    }
    const isNew = existing.then((found) => {
      if (found !== undefined) throw new AlreadyAttached(found);
    });
    const also =
      conf.dataplaneOptions === undefined
        ? storeWith((networks) => draftOf({ hostName: hostNameOf(there), mac: hwAddr ?? "", networks }))
        : undefined;
    try {
      return requireAddresses(await ipamAdd(await behindGate(there, isNew), conf.ipam, { also }), "cni");
    } catch (error) {
      await isNew; // what there is to say about addresses is nothing to a container that has its own
      throw error;
    }
  });
  try {
    if (conf.dataplaneOptions !== undefined) {
      await booking; // who asks for a dataplane there is not is refused when the container has its addresses
      foreignDataplane(conf);
    }
    return await rollingBack(here, booking, async (undo) => {
      await begun;
      const workload = { labels, annotations: {}, ports: [] };
      const plan = { mtu, booking, versions: versionsOf(here), routes: defaultRoutes(), workload };
      const attached = await attach(here, undo, hwAddr === undefined ? plan : { ...plan, hwAddr });
      const booked = await booking;
      await finish(here, booked, draftOf(attached));
      await releaseSurplus(here, booked.assigned);
      await waitForPolicy(here, undefined);
      requireCaller(here);
      return resultFor(here, { ...attached, mtu });
    });
  } catch (error) {
    if (!(error instanceof AlreadyAttached)) throw error;
    const { repeatAdd } = await import("./repeat-add.ts");
    return repeatAdd(here, error.existing, { mtu, draftOf });
  }
}
