// Changes the owner of a virtual machine's addresses in IPAM after its live migration to this host. The pod on the old
// host becomes the alternate owner, so that its deletion does not release the addresses.
import type { WorkloadEndpointId } from "../../calc/index.ts";
import type { Datastore } from "../../datastore/index.ts";
import type { Ipam } from "../../ipam/index.ts";
import type { Cidr } from "../../lib/ip/ip.ts";
import { cidrAddress } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";

const ATTEMPTS = 5;
const FIRST_RETRY_MS = 100;
const TIMEOUT_MS = 30_000;

export interface Arrival {
  readonly id: WorkloadEndpointId;
  readonly endpoint: { readonly ipv4Nets: readonly Cidr[]; readonly ipv6Nets: readonly Cidr[] };
}

/** IPAM is loaded when the first migration completes, because most nodes never need it. */
export function ownerSwapper(deps: {
  readonly store: Datastore;
  readonly log: Logger;
  readonly signal: AbortSignal;
}): (arrival: Arrival) => void {
  const { store, log, signal } = deps;
  return (arrival) => {
    const done = import("../../ipam/index.ts").then(({ Ipam }) =>
      swapOwners({ ipam: new Ipam({ datastore: store, log }), arrival, log, signal }),
    );
    done.catch((error: unknown) => log.warn("could not load IPAM", { error: describeError(error) }));
  };
}

/** Does not throw: an address whose owner cannot be changed is logged and skipped. */
export async function swapOwners(options: {
  readonly ipam: Pick<Ipam, "allocationOf" | "setOwnerAttributes">;
  readonly arrival: Arrival;
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly firstRetryMs?: number;
}): Promise<void> {
  const { arrival, log, signal, firstRetryMs = FIRST_RETRY_MS } = options;
  const timeoutSignal = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  for (const net of [...arrival.endpoint.ipv4Nets, ...arrival.endpoint.ipv6Nets])
    for (let attempt = 1; !timeoutSignal.aborted; attempt++)
      try {
        await swapOwner(options.ipam, arrival.id, net, timeoutSignal);
        break;
      } catch (error) {
        if (attempt === ATTEMPTS || timeoutSignal.aborted) {
          log.warn("could not change the owner of a migrated workload's address in IPAM", {
            workload: arrival.id.workload,
            address: net,
            error: describeError(error),
          });
          break;
        }
        await delay(firstRetryMs * 2 ** (attempt - 1), timeoutSignal).catch(() => {});
      }
}

async function swapOwner(
  ipam: Pick<Ipam, "allocationOf" | "setOwnerAttributes">,
  { workload }: WorkloadEndpointId,
  net: Cidr,
  signal: AbortSignal,
): Promise<void> {
  const address = cidrAddress(net);
  const { handleId, attributes, alternateAttributes } = await ipam.allocationOf(address, signal);
  const [namespace, pod] = workload.split("/");
  // Only if the CNI plugin stored this pod as alternate owner when the migration started. Otherwise the owners were already
  // swapped, or the address belongs to another workload.
  const isAlternate =
    alternateAttributes?.["pod"] === pod && [undefined, namespace].includes(alternateAttributes?.["namespace"]);
  if (!isAlternate || alternateAttributes === undefined || handleId === undefined) return;
  await ipam.setOwnerAttributes(
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
