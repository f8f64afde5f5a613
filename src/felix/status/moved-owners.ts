// When a machine has arrived here, its addresses change their owner: the pod it left becomes the alternate one, so that
// its end does not free them.
import type { WorkloadEndpointId } from "../../calc/index.ts";
import type { Datastore } from "../../datastore/index.ts";
import type { Ipam } from "../../ipam/index.ts";
import type { Cidr } from "../../lib/ip.ts";
import { cidrAddress } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { delay } from "../../lib/retry.ts";

const ATTEMPTS = 5;
const FIRST_PAUSE_MS = 100;
const WHOLE_MS = 30_000;

export interface Arrival {
  readonly id: WorkloadEndpointId;
  readonly endpoint: { readonly ipv4Nets: readonly Cidr[]; readonly ipv6Nets: readonly Cidr[] };
}

/** Loads what it needs when the first machine arrives: few nodes ever see one. */
export function ownerMover(deps: {
  readonly store: Datastore;
  readonly log: Logger;
  readonly signal: AbortSignal;
}): (arrival: Arrival) => void {
  const { store, log, signal } = deps;
  return (arrival) => {
    const moving = import("../../ipam/index.ts").then(({ Ipam }) =>
      moveOwners({ ipam: new Ipam({ datastore: store, log }), arrival, log, signal }),
    );
    moving.catch((error: unknown) => log.warn("IPAM could not be loaded", { error: describeError(error) }));
  };
}

/** Never throws: what cannot be changed is said, and the move goes on without it. */
export async function moveOwners(options: {
  readonly ipam: Pick<Ipam, "allocationOf" | "setOwners">;
  readonly arrival: Arrival;
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly pauseMs?: number;
}): Promise<void> {
  const { arrival, log, signal, pauseMs = FIRST_PAUSE_MS } = options;
  const ends = AbortSignal.any([signal, AbortSignal.timeout(WHOLE_MS)]);
  for (const net of [...arrival.endpoint.ipv4Nets, ...arrival.endpoint.ipv6Nets])
    for (let attempt = 1; !ends.aborted; attempt++)
      try {
        await moveOwner(options.ipam, arrival.id, net, ends);
        break;
      } catch (error) {
        if (attempt === ATTEMPTS || ends.aborted) {
          log.warn("an arrived workload's address keeps its old owner in IPAM", {
            workload: arrival.id.workload,
            address: net,
            error: describeError(error),
          });
          break;
        }
        await delay(pauseMs * 2 ** (attempt - 1), ends).catch(() => {});
      }
}

async function moveOwner(
  ipam: Pick<Ipam, "allocationOf" | "setOwners">,
  { workload }: WorkloadEndpointId,
  net: Cidr,
  signal: AbortSignal,
): Promise<void> {
  const address = cidrAddress(net);
  const { handleId, attributes, alternateAttributes } = await ipam.allocationOf(address, signal);
  const [namespace, pod] = workload.split("/");
  // Nobody else's: the plugin named this pod when the move began, or the change was made already.
  const isMeant =
    alternateAttributes?.["pod"] === pod && [undefined, namespace].includes(alternateAttributes?.["namespace"]);
  if (!isMeant || alternateAttributes === undefined || handleId === undefined) return;
  await ipam.setOwners(
    {
      address,
      handleId,
      active: alternateAttributes,
      alternate: attributes,
      expectActive: attributes,
      expectAlternate: alternateAttributes,
    },
    signal,
  );
}
