// Assigns addresses to services of type LoadBalancer from pools that allow this use, writes them to the status of the service,
// and releases them when the service no longer requests them.
//
//   services ──► requested addresses ──────────┐
//   cache (blocks, pools) ──► allocations ──► changes ──► IPAM ──► status of the service
//
// The cache may lag behind the controller's own writes, so the handle is read from the datastore before each write. If a handle
// ever has two addresses of one family (two replicas assigned one at the same time), one of them is released.
import type { Informer, KubeApi, KubeObject } from "../../datastore/index.ts";
import {
  ATTRIBUTE,
  goTimestamp,
  type Ipam,
  IpamError,
  LOAD_BALANCER_OWNER,
  loadBalancerHandle,
  UnknownHandle,
} from "../../ipam/index.ts";
import { cidrContains, type IpAddress, parseNetwork, tryParseAddress } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { aborted, pause } from "../../lib/retry.ts";
import type { Labels } from "../../model/index.ts";
import type { DatastoreCache } from "../datastore-cache.ts";
import { httpStatusOf } from "../http-status.ts";
import { sameJson } from "../same-json.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { ServiceAllocations } from "./service-allocations.ts";
import {
  type Changes,
  changesFor,
  ingressWith,
  InvalidAddressRequest,
  isManaged,
  type LoadBalancerPool,
  loadBalancerPools,
  type ServiceFacts,
  serviceFacts,
  readAddressRequest,
} from "./desired.ts";

export interface LoadBalancerOptions {
  readonly api: KubeApi;
  readonly services: Informer<ServiceFacts>;
  readonly cache: DatastoreCache;
  readonly ipam: Ipam;
  readonly assignIPs: "AllServices" | "RequestedServicesOnly";
  readonly log: Logger;
  readonly now?: () => Date;
}

/** A service whose addresses differ from the requested ones. */
interface PendingChange {
  readonly key: string;
  readonly service: ServiceFacts;
  readonly handleId: string;
  readonly changes: Changes;
  readonly pools: readonly LoadBalancerPool[];
  /** Addresses that the handle has now; successful assignments are added. */
  readonly allocated: Set<IpAddress>;
}

const FULL_SYNC_MS = 5 * 60_000;
const UPGRADE_RETRY_MS = 10_000;
const STATUS_TIMEOUT_MS = 10_000;
type Service = KubeObject & { readonly status?: { readonly loadBalancer?: object } };

export class LoadBalancerAddresses {
  readonly #options: LoadBalancerOptions;
  readonly #allocations = new ServiceAllocations();
  readonly #queue: WorkQueue;
  /** The last problem logged for each service, so that it is logged once. */
  readonly #loggedProblems = new Map<string, string>();

  constructor(options: LoadBalancerOptions) {
    this.#options = options;
    const { cache, services, log } = options;
    this.#queue = new WorkQueue({ name: "loadbalancer", work: (key, signal) => this.#sync(key, signal), log });
    services.listen(({ key, after }) => {
      if (after === undefined) this.#loggedProblems.delete(key);
      this.#queue.add(key);
    });
    cache.listen(({ blocks, hasOtherChanges }) => {
      let mayHaveFreeAddresses = hasOtherChanges; // a pool may have been added
      for (const cidr of blocks) {
        const block = cache.blocks.get(cidr);
        for (const key of this.#allocations.setBlock(cidr, block)) this.#queue.add(key);
        mayHaveFreeAddresses ||= block === undefined || block.affinity?.startsWith("virtual:") === true;
      }
      if (mayHaveFreeAddresses) this.#queueAll();
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { cache, services } = this.#options;
    await Promise.race([Promise.all([cache.inSync, services.synced]), aborted(signal)]);
    if (signal.aborted) return;
    await this.#upgradeBlocks(signal);
    await Promise.all([this.#queue.run(signal), every(FULL_SYNC_MS, signal, () => this.#queueAll())]);
  }

  #queueAll(): void {
    for (const [key] of this.#options.services.entries()) this.#queue.add(key);
    for (const key of this.#allocations.services()) this.#queue.add(key);
  }

  async #upgradeBlocks(signal: AbortSignal): Promise<void> {
    const { ipam, log } = this.#options;
    while (!signal.aborted)
      try {
        return await ipam.upgradeHost(LOAD_BALANCER_OWNER, signal);
      } catch (error) {
        if (signal.aborted) return;
        log.warn("cannot upgrade the blocks of services, retrying", { error: describeError(error) });
        await pause(UPGRADE_RETRY_MS, signal);
      }
  }

  async #sync(key: string, signal: AbortSignal): Promise<void> {
    const { services, cache, assignIPs } = this.#options;
    if (!cache.isWritable) return; // the cache notifies again when the datastore is unlocked
    const service = services.get(key);
    const handleId =
      service === undefined ? undefined : loadBalancerHandle(service.name, service.namespace, service.uid);
    for (const other of this.#allocations.handlesOf(key))
      if (other !== handleId) await this.#releaseHandle(key, other, signal);
    if (service === undefined || handleId === undefined) return;
    if (isManaged(service, assignIPs)) await this.#updateAddresses(key, service, handleId, signal);
    else if (this.#allocations.handlesOf(key).has(handleId)) {
      const released = await this.#releaseHandle(key, handleId, signal);
      await this.#writeStatus(service, [], (address) => released.includes(address), signal);
    }
  }

  async #updateAddresses(key: string, service: ServiceFacts, handleId: string, signal: AbortSignal): Promise<void> {
    const { cache, ipam } = this.#options;
    const pools = loadBalancerPools(cache.pools.values());
    const isFromPool = (address: IpAddress) => pools.some(({ cidr }) => cidrContains(cidr, address));
    const inStatus = service.ingress.flatMap(({ ip }) => tryParseAddress(ip) ?? []);
    const changesTo = (allocated: readonly IpAddress[]) =>
      changesFor(readAddressRequest(service, pools), allocated, pools, inStatus);
    const cached = this.#allocations.addressesOf(key, handleId);
    try {
      const isDone =
        isEmpty(changesTo(cached)) && sameJson(ingressWith(service.ingress, cached, isFromPool), service.ingress);
      if (isDone) return void this.#loggedProblems.delete(key);
    } catch (error) {
      if (!(error instanceof InvalidAddressRequest)) throw error;
      return this.#logOnce(key, "service requests invalid addresses; its addresses stay unchanged", error.message);
    }
    if (pools.length === 0 && cached.length === 0) {
      this.#logOnce(key, "service gets no address", "no pool has LoadBalancer in spec.allowedUses; add it to one");
      return;
    }
    const allocated = new Set(await this.#readHandle(handleId, signal));
    const changes = changesTo([...allocated]);
    if (changes.release.length > 0) {
      const { error } = await ipam.release(
        changes.release.map((address) => ({ address, handleId })),
        signal,
      );
      if (error !== undefined) throw error;
      this.#options.log.info("released addresses of a service", { service: key, addresses: changes.release });
      for (const address of changes.release) allocated.delete(address);
    }
    // Successful assignments are written to the status even if others failed.
    const failures = await this.#assign({ key, service, handleId, changes, pools, allocated }, signal);
    await this.#writeStatus(
      service,
      sortByFamily(allocated),
      (address) => isFromPool(address) || changes.release.includes(address),
      signal,
    );
    if (failures.length === 0) return void this.#loggedProblems.delete(key);
    for (const failure of failures) {
      // No retry: the service is queued again when a pool or block changes.
      if (!(failure instanceof IpamError)) throw failure;
      this.#logOnce(key, "service gets no address", describeError(failure));
    }
  }

  /** Assigns addresses and adds them to `allocated`. @returns the errors of the assignments that failed */
  async #assign(
    { key, service, handleId, changes, pools, allocated }: PendingChange,
    signal: AbortSignal,
  ): Promise<unknown[]> {
    const { assignExact, assign } = changes;
    if (assignExact.length + assign.length === 0) return [];
    const { ipam, log, now = () => new Date() } = this.#options;
    const attributes = {
      [ATTRIBUTE.namespace]: service.namespace,
      [ATTRIBUTE.service]: service.name,
      [ATTRIBUTE.timestamp]: goTimestamp(now()),
      [ATTRIBUTE.type]: "LoadBalancer",
    };
    const request = { handleId, attributes, host: LOAD_BALANCER_OWNER.name, use: "LoadBalancer" } as const;
    const failures: unknown[] = [];
    for (const address of assignExact)
      try {
        await ipam.assignAddress({ ...request, address }, signal);
        allocated.add(address);
        log.info("assigned the requested address to a service", { service: key, address });
      } catch (error) {
        failures.push(error);
      }
    const namespaceLabels = assign.length > 0 ? await this.#namespaceLabels(service, pools, signal) : {};
    for (const family of assign)
      try {
        const { addresses, messages } = await ipam.autoAssign(
          { ...request, ...family, count: 1, namespaceLabels, maxBlocks: Number.MAX_SAFE_INTEGER }, // the limit is for hosts
          signal,
        );
        for (const network of addresses) allocated.add(parseNetwork(network).address);
        if (addresses.length > 0) log.info("assigned an address to a service", { service: key, addresses });
        else
          this.#logOnce(key, "service gets no address", messages.join("; ") || `no IPv${family.version} address left`);
      } catch (error) {
        failures.push(error);
      }
    return failures;
  }

  /** Reads the labels only if a pool has a namespace selector. */
  async #namespaceLabels(
    { namespace }: ServiceFacts,
    pools: readonly LoadBalancerPool[],
    signal: AbortSignal,
  ): Promise<Labels> {
    if (!pools.some(({ selectsNamespaces }) => selectsNamespaces)) return {};
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
    return (await this.#options.api.get<KubeObject>(path, { signal })).metadata.labels ?? {};
  }

  async #readHandle(handleId: string, signal: AbortSignal): Promise<readonly IpAddress[]> {
    try {
      return await this.#options.ipam.addressesOfHandle(handleId, signal);
    } catch (error) {
      if (error instanceof UnknownHandle) return [];
      throw error;
    }
  }

  async #releaseHandle(key: string, handleId: string, signal: AbortSignal): Promise<readonly IpAddress[]> {
    const { ipam, log } = this.#options;
    const cached = this.#allocations.addressesOf(key, handleId);
    try {
      const addresses = await ipam.releaseByHandle(handleId, signal);
      log.info("released addresses of a service", { service: key, addresses });
      return addresses;
    } catch (error) {
      if (!(error instanceof UnknownHandle)) throw error;
      // The handle object is missing: release the addresses that the cached blocks contain.
      await ipam.release(
        cached.map((address) => ({ address, handleId })),
        signal,
      );
      return cached;
    }
  }

  /** Reads the service and writes its status; retries on a conflict. */
  async #writeStatus(
    { namespace, name, uid }: ServiceFacts,
    allocated: readonly IpAddress[],
    isFromPool: (address: IpAddress) => boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const { api } = this.#options;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/services/${encodeURIComponent(name)}`;
    const until = AbortSignal.any([signal, AbortSignal.timeout(STATUS_TIMEOUT_MS)]);
    for (let attempt = 0; ; attempt++)
      try {
        const current = await api.get<Service>(path, { signal: until });
        const facts = serviceFacts(current);
        if (facts.uid !== uid || !facts.isLoadBalancer) return; // the next sync releases its addresses
        const ingress = ingressWith(facts.ingress, allocated, isFromPool);
        if (sameJson(ingress, facts.ingress)) return;
        const status = { ...current.status, loadBalancer: { ...current.status?.loadBalancer, ingress } };
        await api.json({ method: "PUT", path: `${path}/status`, body: { ...current, status }, signal: until });
        return;
      } catch (error) {
        if (httpStatusOf(error) === 404) return;
        if (httpStatusOf(error) !== 409 || attempt >= 5) throw error;
      }
  }

  #logOnce(key: string, sentence: string, reason: string): void {
    if (this.#loggedProblems.get(key) === reason) return;
    this.#loggedProblems.set(key, reason);
    this.#options.log.warn(sentence, { service: key, reason });
  }
}

const isEmpty = ({ release, assignExact, assign }: Changes): boolean =>
  release.length + assignExact.length + assign.length === 0;

/** IPv4 first. */
const sortByFamily = (addresses: Iterable<IpAddress>): readonly IpAddress[] =>
  [...addresses].sort((a, b) => Number(a.includes(":")) - Number(b.includes(":")));
