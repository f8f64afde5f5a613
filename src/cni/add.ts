// ADD: gates, addresses, wire, endpoint, in this order. What was taken is given back when a later step fails; a kill at
// any point leaves only what DEL finds by the container's ID and interface.
import { tryParseNetwork } from "../lib/ip.ts";
import { addKubernetes } from "./add-kubernetes.ts";
import type { CniContext } from "./context.ts";
import { attach, checkDataplane, finish, resultFor, rollingBack } from "./attach.ts";
import { CniError, INTERNAL } from "./error.ts";
import { addProfile, findEndpoint, type StoredEndpoint } from "./endpoint.ts";
import { checkDatastoreReady, waitForReadinessGates } from "./gates.ts";
import { containerRoutes } from "./host-local.ts";
import { ipamAdd, requireAddresses } from "./ipam-delegation.ts";
import { mesosLabels } from "./mesos-labels.ts";
import { linkMtu } from "./node-files.ts";
import { baseLabels } from "./pod.ts";
import { ensureProfile } from "./profile.ts";
import { cidrText, type CniResult, hostNetwork } from "./result.ts";

export async function add(context: CniContext): Promise<CniResult> {
  const { conf, store, identity } = context;
  const mtu = linkMtu(conf);
  if (!["", "veth", "netkit"].includes(conf.deviceType))
    throw new CniError(INTERNAL, `device_type ${JSON.stringify(conf.deviceType)}: want veth or netkit`);
  if (conf.policySetupTimeoutSeconds < 0)
    throw new CniError(INTERNAL, "policy_setup_timeout_seconds: want 0 (never wait) or more");
  const [, existing] = await Promise.all([checkDatastoreReady(store), findEndpoint(store, identity)]);
  await waitForReadinessGates(conf.readinessGates);
  if (identity.orchestrator === "k8s") return addKubernetes(context, { mtu, existing });
  if (conf.features.ipAddrsNoIpam)
    throw new CniError(INTERNAL, "requested feature is not supported for this runtime: ip_addrs_no_ipam");
  return existing === undefined ? addContainer(context, mtu) : repeatAdd(context, existing, mtu);
}

/** A container that has its wire keeps it; another network only adds its profile. */
async function repeatAdd(context: CniContext, existing: StoredEndpoint, mtu: number): Promise<CniResult> {
  const { conf, store, identity } = context;
  await addProfile(store, existing, conf.name);
  if (conf.policy.type === "") await ensureProfile(store, conf.name, identity.orchestrator, context.now());
  const { spec } = existing.endpoint;
  const networks = (spec.ipNetworks ?? []).flatMap((text) => tryParseNetwork(text) ?? []);
  return resultFor(context, {
    hostName: spec.interfaceName ?? "",
    mac: spec.mac ?? "",
    mtu,
    assigned: { interfaces: [], ips: networks.map((address) => ({ address })), routes: [] },
  });
}

async function addContainer(context: CniContext, mtu: number): Promise<CniResult> {
  const { conf, identity, request } = context;
  const { labels, namespace } = mesosLabels(conf);
  const here = namespace === undefined ? context : { ...context, identity: { ...identity, namespace } };
  const assigned = requireAddresses(await ipamAdd(here, conf.ipam), "cni");
  checkDataplane(conf.dataplaneOptions);
  return rollingBack(here, async (undo) => {
    const attached = await attach(here, undo, {
      mtu,
      networks: assigned.ips.map((ip) => hostNetwork(ip.address)),
      routes: containerRoutes(request.config, conf.includeDefaultRoutes),
      hostRoutes: true,
    });
    const networks = assigned.ips.map((ip) => cidrText(hostNetwork(ip.address)));
    await finish(here, undefined, {
      identity: here.identity,
      labels: { ...labels, ...baseLabels(here.identity) },
      spec: { ipNetworks: networks, profiles: [conf.name], interfaceName: attached.hostName, mac: attached.mac },
    });
    return resultFor(here, { ...attached, mtu, assigned });
  });
}
