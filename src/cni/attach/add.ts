// Implements ADD: checks readiness, assigns addresses, creates the interface, stores the endpoint, waits for policy, and returns
// the result. If a step fails, the completed steps are undone in reverse order. If the process is killed at any point, DEL
// finds everything by the container's ID and interface.
//
// On etcd and SQLite the endpoint is stored in the same transaction as its addresses, before the interface is created; its MAC
// is chosen before. In addition, the CNI service assumes that a workload without an interface is new, and reads its endpoint
// only if that transaction is rejected.
import { type ExtraWrites, ExtraWritesConflict } from "../../ipam/index.ts";
import { allInOrder } from "../../lib/all-in-order.ts";
import { cidrAddress, type Cidr, type IpNetwork } from "../../lib/ip/ip.ts";
import { assignWorkloadAddresses } from "../ipam/workload-addresses.ts";
import { attach, resultFor } from "./attach.ts";
import { callOptions, type CniContext } from "../context.ts";
import { grpcDataplane, usesGrpcDataplane } from "../request/dataplane-options.ts";
import { endpointEntry, findEndpoint, type StoredEndpoint, writeEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL, TRY_AGAIN_LATER } from "../error.ts";
import { requireReady, waitForReadinessGates } from "./readiness.ts";
import { chooseInterface, hasHostInterface } from "./choose-interface.ts";
import { CALICO_IPAM } from "../ipam/ipam-plugin.ts";
import { releaseSurplus } from "../ipam/pool-addresses.ts";
import { linkMtu } from "../request/node-files.ts";
import { waitForPolicy } from "./wait-for-policy.ts";
import { createProfile, hasProfile } from "./profile.ts";
import { type CniResult, hostNetwork } from "../request/result.ts";
import { releaseEverything, Undo } from "./undo.ts";
import { readWorkload, type Workload, workloadIdentity } from "./workload.ts";

const ATTEMPTS = 3;

export async function add(requestContext: CniContext): Promise<CniResult> {
  const { conf, identity } = requestContext;
  const mtu = linkMtu(conf);
  if (!["", "veth", "netkit"].includes(conf.deviceType))
    throw new CniError(INTERNAL, `device_type ${JSON.stringify(conf.deviceType)}: want veth or netkit`);
  if (conf.policySetupTimeoutSeconds < 0 && identity.orchestrator === "k8s")
    throw new CniError(INTERNAL, "policy_setup_timeout_seconds: want 0 (never wait) or more");
  if (identity.orchestrator === "k8s") grpcDataplane(conf); // an unknown one is reported before anything is assigned
  const context = { ...requestContext, identity: workloadIdentity(requestContext) };
  for (let attempt = 1; ; attempt++)
    try {
      return await addOnce(context, mtu, attempt === 1);
    } catch (error) {
      // The workload has an endpoint, or another process changed it. Nothing was assigned: start again and read it.
      if (!(error instanceof ExtraWritesConflict) || attempt === ATTEMPTS) throw error;
    }
}

async function addOnce(context: CniContext, mtu: number, mayAssumeNew: boolean): Promise<CniResult> {
  const { conf, identity, store, mark } = context;
  const call = callOptions(context);

  const { workload, existing, hostName, isProfileStored } = await checkReadiness(context, mayAssumeNew);
  mark("gates open");
  if (identity.orchestrator === "cni" && existing !== undefined) {
    const { repeatAdd } = await import("./repeat-add.ts");
    return repeatAdd(context, existing, { workload, hostName, mtu });
  }

  const undo = new Undo(context.log);
  try {
    const mac = workload.mac ?? (canStoreEarly(context) ? randomMac() : undefined);
    const isStoredEarly = canStoreEarly(context) && existing === undefined && isProfileStored;
    const createEndpoint: ExtraWrites = (addresses) => {
      const planned = { hostName, mac: mac ?? "", networks: addresses.map(singleAddress) };
      return [{ op: "create", entry: endpointEntry(store, workload.draft(planned), undefined, context.now()) }];
    };
    const assigned = await assignWorkloadAddresses(
      context,
      workload,
      existing,
      isStoredEarly ? createEndpoint : undefined,
    );
    mark("address assigned");
    // Calico reports an unknown dataplane of a container only now, and leaves the addresses to DEL.
    if (identity.orchestrator === "cni") grpcDataplane(conf);
    undo.add(() => releaseEverything(context, existing));

    const attached = await attach(context, undo, { hostName, mtu, hwAddr: mac, assigned, existing, workload });

    const draft = workload.draft(attached);
    if (!isProfileStored) {
      endpointEntry(store, draft, existing, context.now()); // an endpoint that cannot be stored creates no profile either
      await createProfile(store, conf.name, identity.orchestrator, { ...call, now: context.now() });
    }
    // It must be written (again) if it was not part of the transaction, or if the interface is not the planned one.
    if (assigned.extraRevisions === undefined || attached.mac !== mac || attached.hostName !== hostName) {
      const before = isStoredEarly ? await findEndpoint(store, identity, call) : existing;
      await writeEndpoint(store, draft, before, { ...call, now: context.now() });
    }
    mark("endpoint stored");
    await releaseSurplus(context, assigned);

    await waitForPolicy(context, existing);

    requireCaller(context);
    return resultFor(context, { ...attached, assigned, mtu });
  } catch (error) {
    await undo.run();
    throw error;
  }
}

interface Readiness {
  readonly workload: Workload;
  /** The endpoint that the workload has already; undefined if it has none or is assumed to be new. */
  readonly existing: StoredEndpoint | undefined;
  readonly hostName: string;
  /** True if the network's profile exists, or is not needed because the network uses Kubernetes policy. */
  readonly isProfileStored: boolean;
}

/** Runs independent checks and reads concurrently. If several fail, the first one in the order below is reported. */
async function checkReadiness(context: CniContext, mayAssumeNew: boolean): Promise<Readiness> {
  const { conf, cache, identity, request, store } = context;
  const call = callOptions(context);
  const known = cache?.cachedPod(identity, request.args.podUid)?.endpoint;
  const isAssumedNew = mayAssumeNew && cache !== undefined && canStoreEarly(context) && !hasHostInterface(context);
  const [, existing, { name: hostName }, isProfileStored, workload] = await allInOrder([
    requireReady(context).then(() => waitForReadinessGates(conf.readinessGates)),
    known === undefined && !isAssumedNew ? findEndpoint(store, identity, call) : Promise.resolve(known),
    chooseInterface(context),
    conf.policy.type !== "" || cache?.hasProfile(conf.name) === true
      ? Promise.resolve(true)
      : hasProfile(store, conf.name, call),
    readWorkload(context),
  ]);
  if (identity.orchestrator === "cni" && conf.features.ipAddrsNoIpam)
    throw new CniError(INTERNAL, "requested feature is not supported for this runtime: ip_addrs_no_ipam");
  return { workload, existing, hostName, isProfileStored };
}

/**
 * True if the endpoint can be stored with its addresses. This requires that interface name and MAC are known before
 * addresses are assigned.
 */
const canStoreEarly = ({ conf, identity, store }: CniContext): boolean =>
  store.transact !== undefined &&
  conf.ipam.type === CALICO_IPAM &&
  conf.deviceType !== "netkit" &&
  !usesGrpcDataplane(conf) &&
  (identity.orchestrator === "k8s" || conf.dataplaneOptions === undefined);

const singleAddress = (address: Cidr): IpNetwork => hostNetwork({ address: cidrAddress(address), length: 0 });

/** Returns a locally administered unicast address, as the kernel would choose. */
function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfe) | 0x02;
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(":");
}

/** The last check of an ADD. It fails if the plugin has disconnected, so that the ADD is undone. */
function requireCaller({ isCallerConnected }: CniContext): void {
  if (isCallerConnected?.() === false)
    throw new CniError(TRY_AGAIN_LATER, "the plugin has disconnected before the ADD was complete; the ADD is undone");
}
