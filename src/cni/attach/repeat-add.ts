// ADD of a container that has its addresses already. It nearly always has its interface too. A kill may have come between
// storing the endpoint and creating the interface; a runtime that repeats the ADD must not get the result of an interface
// that does not exist.
import { type IpNetwork, tryParseNetwork } from "../../lib/ip/ip.ts";
import { attach, type AttachPlan, resultFor } from "./attach.ts";
import { checkWire } from "./check.ts";
import { callOptions, type CniContext } from "../context.ts";
import { isForeign } from "../request/dataplane-options.ts";
import { addProfile, type StoredEndpoint, type WorkloadEndpoint, writeEndpoint } from "./endpoint.ts";
import { CniError } from "../error.ts";
import { waitForPolicy } from "./wait-for-policy.ts";
import { createProfile, hasProfile } from "./profile.ts";
import type { CniResult } from "../request/result.ts";
import { releaseEverything, Undo } from "./undo.ts";
import type { MadeInterface } from "./workload.ts";

type RepeatPlan = Pick<AttachPlan, "hostName" | "mtu" | "workload">;

/**
 * A container that has its interface keeps it; another network only adds its profile.
 * @param plan for an interface that must be created again
 */
export async function repeatAdd(context: CniContext, existing: StoredEndpoint, plan: RepeatPlan): Promise<CniResult> {
  const { conf, store, identity } = context;
  const call = callOptions(context);
  const recreated = lacksWire(context, existing) ? await recreateInterface(context, existing, plan) : undefined;
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

/** False for another interface of the container than the one that was stored: it has the first one's addresses. */
function lacksWire(context: CniContext, { endpoint }: StoredEndpoint): boolean {
  if (isForeign(context.conf) || endpoint.spec.endpoint !== context.request.ifName) return false;
  const networks = networksOf(endpoint);
  try {
    checkWire(context, endpoint, { pod: networks, host: networks });
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
): Promise<MadeInterface> {
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
