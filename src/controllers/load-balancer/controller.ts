// Addresses for services of type LoadBalancer, from pools that allow it: given, shown in the service's status, taken back
// when the service no longer wants them.
//
//   services ──► wish ─┐
//   feed (blocks, pools) ──► holdings ──► changes ──► IPAM ──► status of the service
//
// The feed may lag behind our own writes: before anything is written the handle is read as it is. Should two of a family
// ever come under one handle (a replica that worked a moment too long), one of them is taken back.
import type { Informer, KubeApi, KubeObject } from "../../datastore/index.ts";
import {
  ATTRIBUTE,
  goTimestamp,
  type Ipam,
  IpamError,
  LOAD_BALANCER,
  loadBalancerHandle,
  UnknownHandle,
} from "../../ipam/index.ts";
import { cidrContains, type IpAddress, parseNetwork, tryParseAddress } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { aborted, pause } from "../../lib/retry.ts";
import type { Labels } from "../../model/index.ts";
import type { Feed } from "../feed.ts";
import { codeOf } from "../status-code.ts";
import { sameJson } from "../same-json.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { Holdings } from "./holdings.ts";
import {
  type Changes,
  changesFor,
  ingressWith,
  InvalidWish,
  isManaged,
  type LoadBalancerPool,
  loadBalancerPools,
  type ServiceFacts,
  serviceFacts,
  wishOf,
} from "./wanted.ts";

export interface LoadBalancerOptions {
  readonly api: KubeApi;
  readonly services: Informer<ServiceFacts>;
  readonly feed: Feed;
  readonly ipam: Ipam;
  readonly assignIPs: "AllServices" | "RequestedServicesOnly";
  readonly log: Logger;
  readonly now?: () => Date;
}

/** A service that shall have other addresses than it has. */
interface Wanting {
  readonly key: string;
  readonly service: ServiceFacts;
  readonly handleId: string;
  readonly changes: Changes;
  readonly pools: readonly LoadBalancerPool[];
  readonly held: Set<IpAddress>;
}

const FULL_PASS_MS = 5 * 60_000;
const UPGRADE_RETRY_MS = 10_000;
const STATUS_TIMEOUT_MS = 10_000;
type Service = KubeObject & { readonly status?: { readonly loadBalancer?: object } };

export class LoadBalancerAddresses {
  readonly #options: LoadBalancerOptions;
  readonly #holdings = new Holdings();
  readonly #queue: WorkQueue;
  /** What was last said about a service that cannot be helped: said once. */
  readonly #told = new Map<string, string>();

  constructor(options: LoadBalancerOptions) {
    this.#options = options;
    const { feed, services, log } = options;
    this.#queue = new WorkQueue({ name: "loadbalancer", work: (key, signal) => this.#sync(key, signal), log });
    services.listen(({ key, after }) => {
      if (after === undefined) this.#told.delete(key);
      this.#queue.add(key);
    });
    feed.listen(({ blocks, hasOtherChanges }) => {
      let mayHaveRoom = hasOtherChanges; // a pool may have come
      for (const cidr of blocks) {
        const block = feed.blocks.get(cidr);
        for (const key of this.#holdings.setBlock(cidr, block)) this.#queue.add(key);
        mayHaveRoom ||= block === undefined || block.affinity?.startsWith("virtual:") === true;
      }
      if (mayHaveRoom) this.#lookAtAll();
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { feed, services } = this.#options;
    await Promise.race([Promise.all([feed.inSync, services.synced]), aborted(signal)]);
    if (signal.aborted) return;
    await this.#upgrade(signal);
    await Promise.all([this.#queue.run(signal), every(FULL_PASS_MS, signal, () => this.#lookAtAll())]);
  }

  #lookAtAll(): void {
    for (const [key] of this.#options.services.entries()) this.#queue.add(key);
    for (const key of this.#holdings.services()) this.#queue.add(key);
  }

  async #upgrade(signal: AbortSignal): Promise<void> {
    const { ipam, log } = this.#options;
    while (!signal.aborted)
      try {
        return await ipam.upgradeHost(LOAD_BALANCER, signal);
      } catch (error) {
        if (signal.aborted) return;
        log.warn("blocks of services cannot be put in order; trying again", { error: describeError(error) });
        await pause(UPGRADE_RETRY_MS, signal);
      }
  }

  async #sync(key: string, signal: AbortSignal): Promise<void> {
    const { services, feed, assignIPs } = this.#options;
    if (!feed.isWritable) return; // told again when it is
    const service = services.get(key);
    const handleId =
      service === undefined ? undefined : loadBalancerHandle(service.name, service.namespace, service.uid);
    for (const other of this.#holdings.handlesOf(key))
      if (other !== handleId) await this.#releaseHandle(key, other, signal);
    if (service === undefined || handleId === undefined) return;
    if (isManaged(service, assignIPs)) await this.#serve(key, service, handleId, signal);
    else if (this.#holdings.handlesOf(key).has(handleId)) {
      const released = await this.#releaseHandle(key, handleId, signal);
      await this.#show(service, [], (address) => released.includes(address), signal);
    }
  }

  async #serve(key: string, service: ServiceFacts, handleId: string, signal: AbortSignal): Promise<void> {
    const { feed, ipam } = this.#options;
    const pools = loadBalancerPools(feed.pools.values());
    const isOurs = (address: IpAddress) => pools.some(({ cidr }) => cidrContains(cidr, address));
    const shown = service.ingress.flatMap(({ ip }) => tryParseAddress(ip) ?? []);
    const changesTo = (held: readonly IpAddress[]) => changesFor(wishOf(service, pools), held, pools, shown);
    const seen = this.#holdings.addressesOf(key, handleId);
    try {
      const isDone =
        isNothing(changesTo(seen)) && sameJson(ingressWith(service.ingress, seen, isOurs), service.ingress);
      if (isDone) return void this.#told.delete(key);
    } catch (error) {
      if (!(error instanceof InvalidWish)) throw error;
      return this.#tell(key, "a service asks for addresses that cannot be; it stays as it is", error.message);
    }
    if (pools.length === 0 && seen.length === 0) {
      this.#tell(key, "no pool gives addresses to services", "add LoadBalancer to allowedUses of one");
      return;
    }
    const held = new Set(await this.#heldNow(handleId, signal));
    const changes = changesTo([...held]);
    if (changes.release.length > 0) {
      const { error } = await ipam.release(
        changes.release.map((address) => ({ address, handleId })),
        signal,
      );
      if (error !== undefined) throw error;
      this.#options.log.info("took back addresses of a service", { service: key, addresses: changes.release });
      for (const address of changes.release) held.delete(address);
    }
    // What was given is shown even when the rest cannot be had.
    const failures = await this.#get({ key, service, handleId, changes, pools, held }, signal);
    await this.#show(service, inOrder(held), (address) => isOurs(address) || changes.release.includes(address), signal);
    if (failures.length === 0) return void this.#told.delete(key);
    for (const failure of failures) {
      // Another pool, block or address will call again.
      if (!(failure instanceof IpamError)) throw failure;
      this.#tell(key, "a service gets no address", describeError(failure));
    }
  }

  /** Adds to `held` what could be had. @returns what stood in the way of the rest */
  async #get({ key, service, handleId, changes, pools, held }: Wanting, signal: AbortSignal): Promise<unknown[]> {
    const { take, assign } = changes;
    if (take.length + assign.length === 0) return [];
    const { ipam, log, now = () => new Date() } = this.#options;
    const attributes = {
      [ATTRIBUTE.namespace]: service.namespace,
      [ATTRIBUTE.service]: service.name,
      [ATTRIBUTE.timestamp]: goTimestamp(now()),
      [ATTRIBUTE.type]: "LoadBalancer",
    };
    const request = { handleId, attributes, host: LOAD_BALANCER.name, use: "LoadBalancer" } as const;
    const failures: unknown[] = [];
    for (const address of take)
      try {
        await ipam.assignAddress({ ...request, address }, signal);
        held.add(address);
        log.info("gave a service the address it asks for", { service: key, address });
      } catch (error) {
        failures.push(error);
      }
    const namespaceLabels = assign.length > 0 ? await this.#namespaceLabels(service, pools, signal) : {};
    for (const family of assign)
      try {
        const { addresses, messages } = await ipam.autoAssign(
          { ...request, ...family, count: 1, namespaceLabels, maxBlocks: Number.MAX_SAFE_INTEGER }, // no host's limit
          signal,
        );
        for (const network of addresses) held.add(parseNetwork(network).address);
        if (addresses.length > 0) log.info("gave a service an address", { service: key, addresses });
        else
          this.#tell(key, "a service gets no address", messages.join("; ") || `no IPv${family.version} address left`);
      } catch (error) {
        failures.push(error);
      }
    return failures;
  }

  /** Read only where a pool looks at them. */
  async #namespaceLabels(
    { namespace }: ServiceFacts,
    pools: readonly LoadBalancerPool[],
    signal: AbortSignal,
  ): Promise<Labels> {
    if (!pools.some(({ selectsNamespaces }) => selectsNamespaces)) return {};
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
    return (await this.#options.api.get<KubeObject>(path, { signal })).metadata.labels ?? {};
  }

  async #heldNow(handleId: string, signal: AbortSignal): Promise<readonly IpAddress[]> {
    try {
      return await this.#options.ipam.addressesOfHandle(handleId, signal);
    } catch (error) {
      if (error instanceof UnknownHandle) return [];
      throw error;
    }
  }

  async #releaseHandle(key: string, handleId: string, signal: AbortSignal): Promise<readonly IpAddress[]> {
    const { ipam, log } = this.#options;
    const seen = this.#holdings.addressesOf(key, handleId);
    try {
      const addresses = await ipam.releaseByHandle(handleId, signal);
      log.info("took back addresses of a service", { service: key, addresses });
      return addresses;
    } catch (error) {
      if (!(error instanceof UnknownHandle)) throw error;
      // Addresses without the handle's own record: what the block says must do.
      await ipam.release(
        seen.map((address) => ({ address, handleId })),
        signal,
      );
      return seen;
    }
  }

  /** Writes the status as it should be, on the service as it is now. */
  async #show(
    { namespace, name, uid }: ServiceFacts,
    held: readonly IpAddress[],
    isOurs: (address: IpAddress) => boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const { api } = this.#options;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/services/${encodeURIComponent(name)}`;
    const until = AbortSignal.any([signal, AbortSignal.timeout(STATUS_TIMEOUT_MS)]);
    for (let attempt = 0; ; attempt++)
      try {
        const current = await api.get<Service>(path, { signal: until });
        const facts = serviceFacts(current);
        if (facts.uid !== uid || !facts.isLoadBalancer) return; // its addresses go with the next look
        const ingress = ingressWith(facts.ingress, held, isOurs);
        if (sameJson(ingress, facts.ingress)) return;
        const status = { ...current.status, loadBalancer: { ...current.status?.loadBalancer, ingress } };
        await api.json({ method: "PUT", path: `${path}/status`, body: { ...current, status }, signal: until });
        return;
      } catch (error) {
        if (codeOf(error) === 404) return;
        if (codeOf(error) !== 409 || attempt >= 5) throw error;
      }
  }

  #tell(key: string, sentence: string, reason: string): void {
    if (this.#told.get(key) === reason) return;
    this.#told.set(key, reason);
    this.#options.log.warn(sentence, { service: key, reason });
  }
}

const isNothing = ({ release, take, assign }: Changes): boolean => release.length + take.length + assign.length === 0;

/** IPv4 first. */
const inOrder = (addresses: Iterable<IpAddress>): readonly IpAddress[] =>
  [...addresses].sort((a, b) => Number(a.includes(":")) - Number(b.includes(":")));
