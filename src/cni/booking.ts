// What an ADD takes from the datastore: the gates' word, the addresses, and the endpoint stored with them. Where the
// datastore writes several things at once and remembers what it was last told, that is one write and nothing to read.
import type { Presumption } from "../datastore/index.ts";
import type { Also } from "../ipam/index.ts";
import { cidrAddress, type Cidr, type IpNetwork } from "../lib/ip.ts";
import type { CniContext } from "./context.ts";
import { isForeign } from "./dataplane-options.ts";
import { type EndpointDraft, endpointEntry, findEndpoint, type StoredEndpoint } from "./endpoint.ts";
import { checkDatastoreReady, waitForReadinessGates } from "./gates.ts";
import { CALICO_IPAM } from "./ipam-delegation.ts";
import { gateSignal } from "./open-context.ts";
import { type Assigned, onStore } from "./ipam-plugin.ts";
import { requireInterface } from "./interface-conflict.ts";
import { hasProfile } from "./profile.ts";
import { hostNetwork } from "./result.ts";

export interface Booking {
  /** The endpoint this workload had before. */
  readonly existing: StoredEndpoint | undefined;
  /** Whether the network's profile is there; Kubernetes has its own. */
  readonly hasProfile: boolean;
  readonly assigned: Omit<Assigned, "also">;
  /** The new endpoint, when it was stored with the addresses. */
  readonly stored?: StoredEndpoint;
}

export interface Booked {
  /** The gates are open, as far as is known: what else there is to do may begin. Fails only when the booking does. */
  readonly begun: Promise<void>;
  readonly booking: Promise<Booking>;
}

/** Stores an endpoint with its addresses, if it is new and this can be. */
export type StoreWith = (draft: (addresses: readonly IpNetwork[]) => EndpointDraft) => Also | undefined;

/** Before an endpoint can be stored with its addresses its interface must be known, and that includes its MAC. */
export const canStoreEarly = ({ conf, store }: CniContext): boolean =>
  store.together !== undefined && conf.ipam.type === CALICO_IPAM && conf.deviceType !== "netkit" && !isForeign(conf);

/** A workload is new: nearly always so, and the write is refused when it is not. */
const NEW_WORKLOAD: Presumption = {
  isEmpty: (query) => query.type === "resource" && query.kind === "WorkloadEndpoint",
};

/** @param assign may run twice, until its first write */
export function book(
  context: CniContext,
  assign: (here: CniContext, existing: Promise<StoredEndpoint | undefined>, storeWith: StoreWith) => Promise<Assigned>,
): Booked {
  const { conf, memory } = context;
  const begun = Promise.withResolvers<void>();
  const urls = once(() => waitForReadinessGates(conf.readinessGates));
  const booking = memory.recall.attempt(
    context.store,
    async (store): Promise<Booking> => {
      const here = onStore(context, store);
      const profile = conf.policy.type === "" ? hasProfile(store, conf.name) : Promise.resolve(true);
      profile.catch(() => {}); // awaited below
      const existing = passGates(here, urls, () => requireInterface(context));
      existing.then(() => begun.resolve()).catch(() => {});
      let stored: (Omit<StoredEndpoint, "stored"> & { readonly key: StoredEndpoint["stored"]["key"] }) | undefined;
      const storeWith: StoreWith = (draft) =>
        canStoreEarly(here)
          ? async (addresses) => {
              if ((await existing) !== undefined || !(await profile)) return [];
              const entry = endpointEntry(store, draft(addresses.map(alone)), undefined, context.now());
              stored = { key: entry.key, endpoint: entry.value };
              return [{ op: "create", entry }];
            }
          : undefined;
      const { also, ...assigned } = await assign(here, existing, storeWith);
      const revision = also?.[0];
      return {
        existing: await existing,
        hasProfile: await profile,
        assigned,
        ...(revision === undefined || stored === undefined
          ? {}
          : { stored: { endpoint: stored.endpoint, stored: { key: stored.key, value: stored.endpoint, revision } } }),
      };
    },
    NEW_WORKLOAD,
  );
  booking.catch(begun.reject);
  begun.promise.catch(() => {}); // who waits for it hears of it
  return { begun: begun.promise, booking };
}

/** @param interfaceCheck reads the datastore itself: `context` assumes that workloads are new */
async function passGates(
  context: CniContext,
  urls: () => Promise<void>,
  interfaceCheck: () => Promise<unknown>,
): Promise<StoredEndpoint | undefined> {
  const { store, identity, mark } = context;
  const ready = checkDatastoreReady(store, gateSignal(context));
  const [, existing] = await Promise.all([ready, findEndpoint(store, identity), interfaceCheck()]);
  await urls();
  mark("gates open");
  return existing;
}

const alone = (address: Cidr): IpNetwork => hostNetwork({ address: cidrAddress(address), length: 0 });

/** One of our own choice, as the kernel would make it: for one device alone, given by nobody. */
export function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfe) | 0x02;
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(":");
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
