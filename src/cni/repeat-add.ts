// ADD of a container that has its addresses already. It nearly always has its interface too. A kill may have come between
// storing the endpoint and creating the interface; a runtime that repeats the ADD must not get the result of an interface
// that does not exist.
import { type IpNetwork, tryParseNetwork } from "../lib/ip.ts";
import { attach, resultFor } from "./attach.ts";
import { checkWire } from "./check.ts";
import { callOptions, type CniContext } from "./context.ts";
import { isForeign } from "./dataplane-options.ts";
import { addProfile, type StoredEndpoint, type WorkloadEndpoint, writeEndpoint } from "./endpoint.ts";
import { CniError } from "./error.ts";
import { waitForPolicy } from "./policy-wait.ts";
import { createProfile, hasProfile } from "./profile.ts";
import type { CniResult } from "./result.ts";
import { releaseEverything, Undo } from "./undo.ts";
import type { Workload } from "./workload.ts";

/** A container that has its interface keeps it; another network only adds its profile. */
export async function repeatAdd(
  context: CniContext,
  existing: StoredEndpoint,
  workload: Workload,
  mtu: number,
): Promise<CniResult> {
  const { conf, store, identity } = context;
  const call = callOptions(context);
  if (lacksWire(context, existing)) await recreateInterface(context, existing, workload, mtu);
  await addProfile(store, existing, conf.name, call);
  if (conf.policy.type === "" && !(await hasProfile(store, conf.name, call)))
    await createProfile(store, conf.name, identity.orchestrator, { ...call, now: context.now() });
  await waitForPolicy(context, existing);
  const { interfaceName: hostName = "", mac = "" } = existing.endpoint.spec;
  return resultFor(context, { hostName, mac, mtu, assigned: assignedTo(existing) });
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
  workload: Workload,
  mtu: number,
): Promise<void> {
  const { store } = context;
  const { mac = "" } = existing.endpoint.spec;
  const undo = new Undo(context.log);
  undo.add(() => releaseEverything(context, existing));
  try {
    const plan = { mtu, hwAddr: mac === "" ? undefined : mac, assigned: assignedTo(existing), existing, workload };
    const attached = await attach(context, undo, plan);
    if (attached.mac !== mac)
      await writeEndpoint(store, workload.draft(attached), existing, { ...callOptions(context), now: context.now() });
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
