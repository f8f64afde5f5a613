// ADD: gates, addresses, wire, endpoint. What was taken is given back when a later step fails; a kill at any point leaves
// only what DEL finds by the container's ID and interface.
//
// Nothing is written before the gates are open, but IPAM reads ahead while they are being checked, and the wire is made
// while IPAM works: round trips to the datastore are most of what a pod waits for.
import { tryParseNetwork } from "../lib/ip.ts";
import { addKubernetes } from "./add-kubernetes.ts";
import { type AddFacts, attach, checkDataplane, finish, resultFor, rollingBack } from "./attach.ts";
import type { CniContext } from "./context.ts";
import { defaultRoutes } from "./datapath.ts";
import { addProfile, findEndpoint, type StoredEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { behindGate } from "./gated-store.ts";
import { checkDatastoreReady, waitForReadinessGates } from "./gates.ts";
import { ipamAdd, requireAddresses } from "./ipam-delegation.ts";
import { mesosLabels } from "./mesos-labels.ts";
import { linkMtu } from "./node-files.ts";
import { baseLabels } from "./pod.ts";
import { createProfile, hasProfile } from "./profile.ts";
import { cidrText, type CniResult } from "./result.ts";

export async function add(context: CniContext): Promise<CniResult> {
  const { conf, store, identity } = context;
  const mtu = linkMtu(conf);
  if (!["", "veth", "netkit"].includes(conf.deviceType))
    throw new CniError(INTERNAL, `device_type ${JSON.stringify(conf.deviceType)}: want veth or netkit`);
  if (conf.policySetupTimeoutSeconds < 0)
    throw new CniError(INTERNAL, "policy_setup_timeout_seconds: want 0 (never wait) or more");
  const profile = conf.policy.type === "" ? hasProfile(store, conf.name) : undefined;
  profile?.catch(() => {}); // awaited where the profile is needed
  const facts: AddFacts = { mtu, existing: passGates(context), profile };
  facts.existing.catch(() => {}); // awaited by whoever goes on
  return identity.orchestrator === "k8s" ? addKubernetes(context, facts) : addContainer(context, facts);
}

async function passGates({ conf, store, identity, mark }: CniContext): Promise<StoredEndpoint | undefined> {
  const [, existing] = await Promise.all([checkDatastoreReady(store), findEndpoint(store, identity)]);
  await waitForReadinessGates(conf.readinessGates);
  mark("gates open");
  return existing;
}

async function addContainer(context: CniContext, { mtu, existing, profile }: AddFacts): Promise<CniResult> {
  const { conf, identity } = context;
  if (conf.features.ipAddrsNoIpam) {
    await existing;
    throw new CniError(INTERNAL, "requested feature is not supported for this runtime: ip_addrs_no_ipam");
  }
  const { labels, namespace } = mesosLabels(conf);
  const here = namespace === undefined ? context : { ...context, identity: { ...identity, namespace } };
  const isNew = existing.then((found) => {
    if (found !== undefined) throw new Error("the container has its addresses already");
  });
  const assigning = behindGate(here, isNew)
    .then((gated) => ipamAdd(gated, conf.ipam))
    .then((result) => requireAddresses(result, "cni"));
  assigning.catch(() => {}); // awaited below, unless the container is there already
  const found = await existing;
  if (found !== undefined) return repeatAdd(context, found, { mtu, profile });
  if (conf.dataplaneOptions !== undefined) {
    await assigning;
    checkDataplane(conf.dataplaneOptions);
  }
  return rollingBack(here, assigning, async (undo) => {
    const attached = await attach(here, undo, { mtu, assigning, routes: defaultRoutes(), hostRoutes: true });
    const draft = {
      identity: here.identity,
      labels: { ...labels, ...baseLabels(here.identity) },
      spec: {
        ipNetworks: attached.networks.map(cidrText),
        profiles: [conf.name],
        interfaceName: attached.hostName,
        mac: attached.mac,
      },
    };
    await finish(here, undefined, draft, profile);
    return resultFor(here, { ...attached, mtu });
  });
}

/** A container that has its wire keeps it; another network only adds its profile. */
async function repeatAdd(
  context: CniContext,
  existing: StoredEndpoint,
  { mtu, profile }: Pick<AddFacts, "mtu" | "profile">,
): Promise<CniResult> {
  const { conf, store, identity } = context;
  await addProfile(store, existing, conf.name);
  if (profile !== undefined && !(await profile))
    await createProfile(store, conf.name, identity.orchestrator, context.now());
  const { spec } = existing.endpoint;
  const networks = (spec.ipNetworks ?? []).flatMap((text) => tryParseNetwork(text) ?? []);
  return resultFor(context, {
    hostName: spec.interfaceName ?? "",
    mac: spec.mac ?? "",
    mtu,
    assigned: { interfaces: [], ips: networks.map((address) => ({ address })), routes: [] },
  });
}
