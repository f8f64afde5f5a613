// ADD of a container that has its addresses already. Its wire it has nearly always too: the endpoint is stored with the
// addresses while the wire is made, and a kill may have come before that was done. A runtime that repeats the ADD must not
// get the result of a wire that does not exist.
import { type IpNetwork, tryParseNetwork } from "../lib/ip.ts";
import { type Attached, attach, finish, resultFor, rollingBack } from "./attach.ts";
import { checkWire } from "./check.ts";
import type { CniContext } from "./context.ts";
import { defaultRoutes } from "./datapath.ts";
import { isForeign } from "./dataplane-options.ts";
import { addProfile, type EndpointDraft, type StoredEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError } from "./error.ts";
import { waitForPolicy } from "./policy-wait.ts";
import { createProfile, hasProfile } from "./profile.ts";
import type { CniResult } from "./result.ts";

interface Wanted {
  readonly mtu: number;
  readonly draftOf: (attached: Attached) => EndpointDraft;
}

/** A container that has its wire keeps it; another network only adds its profile. */
export async function repeatAdd(context: CniContext, existing: StoredEndpoint, wanted: Wanted): Promise<CniResult> {
  const { conf, store, identity } = context;
  if (lacksWire(context, existing)) await rewire(context, existing, wanted);
  await addProfile(store, existing, conf.name);
  if (conf.policy.type === "" && !(await hasProfile(store, conf.name)))
    await createProfile(store, conf.name, identity.orchestrator, context.now());
  await waitForPolicy(context, existing);
  const { spec } = existing.endpoint;
  return resultFor(context, {
    hostName: spec.interfaceName ?? "",
    mac: spec.mac ?? "",
    mtu: wanted.mtu,
    assigned: assignedTo(existing),
  });
}

/** Of another interface of the container nothing is said: it has the first one's addresses. */
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

/** The wire for what was stored. When it cannot be made all of it goes. */
async function rewire(context: CniContext, existing: StoredEndpoint, { mtu, draftOf }: Wanted): Promise<void> {
  const { mac = "" } = existing.endpoint.spec;
  const booking = Promise.resolve({ existing, hasProfile: true, assigned: assignedTo(existing), stored: existing });
  await rollingBack(context, booking, async (undo) => {
    const workload = { labels: {}, annotations: {}, ports: [] };
    const plan = { mtu, booking, versions: [], routes: defaultRoutes(), workload };
    const attached = await attach(context, undo, mac === "" ? plan : { ...plan, hwAddr: mac });
    await finish(context, await booking, draftOf(attached));
  });
}

const assignedTo = ({ endpoint }: StoredEndpoint): CniResult => ({
  interfaces: [],
  ips: networksOf(endpoint).map((address) => ({ address })),
  routes: [],
});

const networksOf = ({ spec }: WorkloadEndpoint): IpNetwork[] =>
  (spec.ipNetworks ?? []).flatMap((text) => tryParseNetwork(text) ?? []);
