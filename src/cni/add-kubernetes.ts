// ADD for a pod. Every ADD gives new addresses (they belong to the container, not to the pod) and rebuilds the wire; the
// old container's addresses go with its own DEL.
import { type Also, containerHandle, StaleRelease, UnknownHandle } from "../ipam/index.ts";
import { type IpAddress, type IpNetwork, type IpVersion, ipVersion, tryParseCidr } from "../lib/ip.ts";
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
import type { EndpointDraft, StoredEndpoint, WorkloadEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { behindGate } from "./gated-store.ts";
import { containerRoutes } from "./host-local.ts";
import { isLauncher } from "./identity.ts";
import { CALICO_IPAM, ipamAdd, requireAddresses } from "./ipam-delegation.ts";
import { type Assigned, releaseSurplus } from "./ipam-plugin.ts";
import { baseLabels, type PodFacts, podFacts } from "./pod.ts";
import { waitForPolicy } from "./policy-wait.ts";
import { cidrText, type CniResult, hostNetwork } from "./result.ts";

export async function addKubernetes(context: CniContext, mtu: number): Promise<CniResult> {
  const { conf, identity, request } = context;
  foreignDataplane(conf); // one there is not is refused before anything is taken
  const routes = containerRoutes(request.config, conf.includeDefaultRoutes);
  const reading = conf.policy.type === "k8s" ? readPod(context) : Promise.resolve(undefined);
  reading.catch(() => {}); // what the gates say comes first
  const ownMac = canStoreEarly(context) ? randomMac() : undefined;
  const draftOf = (
    facts: PodFacts | undefined,
    made: Pick<Attached, "hostName" | "mac" | "networks">,
  ): EndpointDraft => {
    const ipNATs = floatingAddresses(context, facts, made.networks);
    const allowSpoofed = facts?.wishes.allowedSourcePrefixes;
    return {
      identity,
      labels: facts?.labels ?? baseLabels(identity),
      ...(facts?.generateName === undefined ? {} : { generateName: facts.generateName }),
      spec: {
        ...(facts?.serviceAccountName === undefined ? {} : { serviceAccountName: facts.serviceAccountName }),
        ipNetworks: made.networks.map(cidrText),
        ...(ipNATs.length === 0 ? {} : { ipNATs }),
        profiles: facts?.profiles ?? [conf.name],
        interfaceName: made.hostName,
        mac: made.mac,
        ...(facts === undefined || facts.ports.length === 0 ? {} : { ports: facts.ports }),
        ...(allowSpoofed === undefined ? {} : { allowSpoofedSourcePrefixes: allowSpoofed }),
      } as WorkloadEndpoint["spec"],
    };
  };
  const { begun, booking } = book(context, async (here, existing, storeWith) => {
    if (conf.policy.type === "k8s") await existing;
    const facts = await reading;
    const mac = facts?.wishes.hwAddr ?? ownMac ?? "";
    const also = storeWith((networks) => draftOf(facts, { hostName: hostNameOf(here), mac, networks }));
    return addressesFor(here, facts, existing, also);
  });
  return rollingBack(context, booking, async (undo) => {
    await begun;
    const facts = await reading;
    const hwAddr = facts?.wishes.hwAddr ?? ownMac;
    const workload = {
      labels: facts?.labels ?? {},
      annotations: facts?.annotations ?? {},
      ports: facts?.ports ?? [],
    };
    const plan = { mtu, booking, versions: versionsFor(context, facts), routes, workload };
    const attached = await attach(context, undo, hwAddr === undefined ? plan : { ...plan, hwAddr });
    const booked = await booking;
    await finish(context, booked, draftOf(facts, attached));
    await releaseSurplus(context, booked.assigned);
    await waitForPolicy(context, booked.existing);
    requireCaller(context);
    return resultFor(context, { ...attached, mtu });
  });
}

async function readPod(context: CniContext): Promise<PodFacts> {
  const { conf, identity } = context;
  const api = await context.kubernetes();
  const [namespace, pod] = await Promise.all([
    api.namespace(identity.namespace),
    api.pod(identity.namespace, identity.pod),
  ]);
  return podFacts(identity, pod, namespace, conf.ipam);
}

async function addressesFor(
  context: CniContext,
  facts: PodFacts | undefined,
  existing: Promise<StoredEndpoint | undefined>,
  also: Also | undefined,
): Promise<Assigned> {
  const { conf } = context;
  const settings = facts?.ipam ?? conf.ipam;
  const { ipAddrs, ipAddrsNoIpam } = facts?.wishes ?? {};
  if (ipAddrs === undefined && ipAddrsNoIpam === undefined)
    return requireAddresses(await ipamAdd(await behindGate(context, existing), settings, { also }), "k8s");
  const found = await existing;
  if (conf.ipam.type !== CALICO_IPAM)
    throw new CniError(
      INTERNAL,
      `a pod that names its addresses needs ipam.type ${CALICO_IPAM}, not ${conf.ipam.type}`,
    );
  if (ipAddrsNoIpam !== undefined) {
    if (!conf.features.ipAddrsNoIpam)
      throw new CniError(INTERNAL, "requested feature is not enabled: ip_addrs_no_ipam");
    return withoutRoutes(ipAddrsNoIpam);
  }
  if (found !== undefined) await releaseAddressesOf(context, found);
  let isStillElsewhere = false;
  let handleCount = 0;
  for (const ip of ipAddrs ?? [])
    try {
      const given = await ipamAdd(context, settings, { ip });
      isStillElsewhere ||= given.isStillElsewhere === true;
      handleCount = given.handleCount ?? 0;
    } catch (error) {
      throw new CniError(
        INTERNAL,
        `error getting IP from IPAM: ${error instanceof Error ? error.message : error}`,
        undefined,
        {
          cause: error,
        },
      );
    }
  return { ...withoutRoutes(ipAddrs ?? []), isStillElsewhere, handleCount };
}

/** What is set for a family that the pod then does not have would stay: it is set before the addresses come if they are known. */
function versionsFor(context: CniContext, facts: PodFacts | undefined): readonly IpVersion[] {
  const named = facts?.wishes.ipAddrsNoIpam ?? facts?.wishes.ipAddrs;
  if (named !== undefined) return ([4, 6] as const).filter((version) => named.some((ip) => ipVersion(ip) === version));
  return isLauncher(context.identity) ? [] : versionsOf(context); // a machine may have kept others than the network assigns now
}

const withoutRoutes = (addresses: readonly IpAddress[]): CniResult => ({
  interfaces: [],
  ips: addresses.map((address) => ({ address: hostNetwork({ address, length: 0 }) })),
  routes: [],
});

/**
 * Releases the addresses that the pod's last container still holds; otherwise they would count as taken. In the Kubernetes
 * datastore the endpoint's addresses and container ID come from the pod, whose annotations its author writes: only
 * allocations whose attributes name this pod are released.
 */
async function releaseAddressesOf(context: CniContext, { endpoint }: StoredEndpoint): Promise<void> {
  const { conf, identity, ipam, log } = context;
  const owner = { namespace: identity.namespace, pod: identity.pod };
  try {
    if (isLauncher(identity)) {
      // By handle, not by address: a virtual machine keeps its own addresses.
      await ipam.releaseByHandleWith(containerHandle(conf.name, endpoint.spec.containerID ?? ""), { owner });
      return;
    }
    const addresses = (endpoint.spec.ipNetworks ?? []).flatMap((text) => tryParseCidr(text)?.split("/")[0] ?? []);
    if (addresses.length === 0) return;
    const { error } = await ipam.release(addresses.map((address) => ({ address: address as IpAddress, owner })));
    if (error !== undefined) throw error;
  } catch (error) {
    if (error instanceof UnknownHandle) return;
    if (!(error instanceof StaleRelease)) throw error;
    log.warn("did not release an address that the pod's endpoint names: it belongs to another workload", { error });
  }
}

/** Each address that reaches the pod from outside stands for its own address of that family. */
function floatingAddresses(context: CniContext, facts: PodFacts | undefined, networks: readonly IpNetwork[]) {
  const floating = facts?.wishes.floatingIps;
  if (floating === undefined) return [];
  if (!context.conf.features.floatingIps)
    throw new CniError(INTERNAL, "requested feature is not enabled: floating_ips");
  return floating.map((externalIP) => {
    const internal = networks.find(({ address }) => ipVersion(address) === ipVersion(externalIP));
    if (internal === undefined)
      throw new CniError(INTERNAL, `floating IP ${externalIP}: the pod has no IPv${ipVersion(externalIP)} address`);
    return { internalIP: internal.address, externalIP };
  });
}
