// ADD for a pod. Every ADD gives new addresses (they belong to the container, not to the pod) and rebuilds the wire; the
// old container's addresses go with its own DEL.
import { type IpAddress, ipVersion, tryParseCidr } from "../lib/ip.ts";
import { type AddFacts, attach, checkDataplane, finish, resultFor, rollingBack } from "./attach.ts";
import type { CniContext } from "./context.ts";
import type { StoredEndpoint, WorkloadEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { behindGate } from "./gated-store.ts";
import { containerRoutes } from "./host-local.ts";
import { CALICO_IPAM, ipamAdd, requireAddresses } from "./ipam-delegation.ts";
import { baseLabels, type PodFacts, podFacts } from "./pod.ts";
import { cidrText, type CniResult, hostNetwork } from "./result.ts";

export async function addKubernetes(context: CniContext, { mtu, existing, profile }: AddFacts): Promise<CniResult> {
  const { conf, identity, request } = context;
  checkDataplane(conf.dataplaneOptions);
  const routes = containerRoutes(request.config, conf.includeDefaultRoutes);
  const facts = conf.policy.type === "k8s" ? await readPod(context, existing) : undefined;
  const assigning = addressesFor(context, facts, existing);
  const allowSpoofed = facts?.wishes.allowedSourcePrefixes;
  return rollingBack(context, assigning, async (undo) => {
    const found = await existing;
    const ipNATs = floatingAddresses(context, facts, assigning);
    ipNATs.catch(() => {}); // awaited before anything is stored
    const { hwAddr } = facts?.wishes ?? {};
    const attached = await attach(context, undo, {
      mtu,
      assigning,
      routes,
      hostRoutes: true,
      ...(hwAddr === undefined ? {} : { hwAddr }),
    });
    const floating = await ipNATs;
    const draft = {
      identity,
      labels: facts?.labels ?? baseLabels(identity),
      ...(facts?.generateName === undefined ? {} : { generateName: facts.generateName }),
      spec: {
        ...(facts?.serviceAccountName === undefined ? {} : { serviceAccountName: facts.serviceAccountName }),
        ipNetworks: attached.networks.map(cidrText),
        ...(floating.length === 0 ? {} : { ipNATs: floating }),
        profiles: facts?.profiles ?? [conf.name],
        interfaceName: attached.hostName,
        mac: attached.mac,
        ...(facts === undefined || facts.ports.length === 0 ? {} : { ports: facts.ports }),
        ...(allowSpoofed === undefined ? {} : { allowSpoofedSourcePrefixes: allowSpoofed }),
      } as WorkloadEndpoint["spec"],
    };
    await finish(context, found, draft, profile);
    return resultFor(context, { ...attached, mtu });
  });
}

async function readPod(context: CniContext, gates: Promise<unknown>): Promise<PodFacts> {
  const { conf, identity } = context;
  const read = context
    .kubernetes()
    .then((api) => Promise.all([api.namespace(identity.namespace), api.pod(identity.namespace, identity.pod)]));
  read.catch(() => {}); // what the gates say comes first
  await gates;
  const [namespace, pod] = await read;
  return podFacts(identity, pod, namespace, conf.ipam);
}

async function addressesFor(
  context: CniContext,
  facts: PodFacts | undefined,
  existing: Promise<StoredEndpoint | undefined>,
): Promise<CniResult> {
  const { conf } = context;
  const settings = facts?.ipam ?? conf.ipam;
  const { ipAddrs, ipAddrsNoIpam } = facts?.wishes ?? {};
  if (ipAddrs === undefined && ipAddrsNoIpam === undefined)
    return requireAddresses(await ipamAdd(await behindGate(context, existing), settings), "k8s");
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
  for (const ip of ipAddrs ?? [])
    try {
      await ipamAdd(context, settings, ip);
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
  return withoutRoutes(ipAddrs ?? []);
}

const withoutRoutes = (addresses: readonly IpAddress[]): CniResult => ({
  interfaces: [],
  ips: addresses.map((address) => ({ address: hostNetwork({ address, length: 0 }) })),
  routes: [],
});

/** The pod's own addresses, still held by its last container, would otherwise count as taken. */
async function releaseAddressesOf(context: CniContext, { endpoint }: StoredEndpoint): Promise<void> {
  const addresses = (endpoint.spec.ipNetworks ?? []).flatMap((text) => tryParseCidr(text)?.split("/")[0] ?? []);
  if (addresses.length === 0) return;
  const { error } = await context.ipam.release(addresses.map((address) => ({ address: address as IpAddress })));
  if (error !== undefined) throw error;
}

/** Each address that reaches the pod from outside stands for its own address of that family. */
async function floatingAddresses(context: CniContext, facts: PodFacts | undefined, assigning: Promise<CniResult>) {
  const floating = facts?.wishes.floatingIps;
  const { ips } = await assigning;
  if (floating === undefined) return [];
  if (!context.conf.features.floatingIps)
    throw new CniError(INTERNAL, "requested feature is not enabled: floating_ips");
  return floating.map((externalIP) => {
    const internal = ips.map((ip) => ip.address).find(({ address }) => ipVersion(address) === ipVersion(externalIP));
    if (internal === undefined)
      throw new CniError(INTERNAL, `floating IP ${externalIP}: the pod has no IPv${ipVersion(externalIP)} address`);
    return { internalIP: internal.address, externalIP };
  });
}
