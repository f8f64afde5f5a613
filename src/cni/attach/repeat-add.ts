// Implements ADD of a container that already has an endpoint. It usually has its interface too. If the first ADD was killed
// after storing the endpoint and before creating the interface, the interface is created now.
import { type IpNetwork, tryParseNetwork } from "../../lib/ip/ip.ts";
import { attach, type AttachPlan, resultFor } from "./attach.ts";
import { checkInterfacePair } from "./check.ts";
import { callOptions, type CniContext } from "../context.ts";
import { usesGrpcDataplane } from "../request/dataplane-options.ts";
import { addProfile, type StoredEndpoint, type WorkloadEndpoint, writeEndpoint } from "./endpoint.ts";
import { CniError } from "../error.ts";
import { waitForPolicy } from "./wait-for-policy.ts";
import { createProfile, hasProfile } from "./profile.ts";
import type { CniResult } from "../request/result.ts";
import { releaseEverything, Undo } from "./undo.ts";
import type { AttachedInterface } from "./workload.ts";

type RepeatPlan = Pick<AttachPlan, "hostName" | "mtu" | "workload">;

/**
 * A container that has its interface keeps it. If the ADD is for another network, that network's profile is added.
 * @param plan used if the interface must be created
 */
export async function repeatAdd(context: CniContext, existing: StoredEndpoint, plan: RepeatPlan): Promise<CniResult> {
  const { conf, store, identity } = context;
  const call = callOptions(context);
  const recreated = lacksInterface(context, existing) ? await recreateInterface(context, existing, plan) : undefined;
  await addProfile(store, existing, conf.name, call);
  if (conf.policy.type === "" && !(await hasProfile(store, conf.name, call)))
    await createProfile(store, conf.name, identity.orchestrator, { ...call, now: context.now() });
  await waitForPolicy(context, existing);
  const { interfaceName = "", mac = "" } = existing.endpoint.spec;
  const { mtu } = plan;
  return resultFor(context, {
    ...(recreated ?? { hostName: interfaceName, mac }),
    mtu,
    assigned: assignedTo(existing),
  });
}

/** False if the request is for another interface than the stored one: it gets the result of the stored interface. */
function lacksInterface(context: CniContext, { endpoint }: StoredEndpoint): boolean {
  if (usesGrpcDataplane(context.conf) || endpoint.spec.endpoint !== context.request.ifName) return false;
  const networks = networksOf(endpoint);
  try {
    checkInterfacePair(context, endpoint, { pod: networks, host: networks });
    return false;
  } catch (error) {
    if (error instanceof CniError) return true;
    throw error;
  }
}

/** Creates the interface for the stored endpoint. If that fails, the endpoint and its addresses are released. */
async function recreateInterface(
  context: CniContext,
  existing: StoredEndpoint,
  plan: RepeatPlan,
): Promise<AttachedInterface> {
  const { store } = context;
  const { interfaceName, mac = "" } = existing.endpoint.spec;
  const undo = new Undo(context.log);
  undo.add(() => releaseEverything(context, existing));
  try {
    const hwAddr = mac === "" ? undefined : mac;
    const attached = await attach(context, undo, { ...plan, hwAddr, assigned: assignedTo(existing), existing });
    if (attached.mac !== mac || attached.hostName !== interfaceName) {
      const options = { ...callOptions(context), now: context.now() };
      await writeEndpoint(store, plan.workload.draft(attached), existing, options);
    }
    return attached;
  } catch (error) {
    await undo.run();
    throw error;
  }
}

const assignedTo = ({ endpoint }: StoredEndpoint): CniResult => ({
  interfaces: [],
  ips: networksOf(endpoint).map((address) => ({ address })),
  routes: [],
});

const networksOf = ({ spec }: WorkloadEndpoint): IpNetwork[] =>
  (spec.ipNetworks ?? []).flatMap((text) => tryParseNetwork(text) ?? []);
