// Keeps the bandwidth limits of workloads. Traffic to a workload passes a token bucket on its interface. Traffic from a workload
// is redirected to an ifb device, which has a token bucket too.
//
// Other programs, such as the CNI bandwidth plugin, set limits in the same way. Felix recognizes its own token bucket by the
// length of its queue (`queueLimit`) and its redirect by the name of the device, and removes nothing else. It does not use the
// alias of the interface for that, because the CNI plugin stores the owner of the interface there.
import { createHash } from "node:crypto";
import {
  burstTicks,
  hasErrno,
  type Link,
  type Links,
  type TokenBucket,
  type TrafficControl,
} from "../../kernel/index.ts";
import type { ProtoWorkloadEndpoint } from "../../calc/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Reconciler } from "../loop/manager.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

export const REDIRECT_PREFIX = "bwcali";
const NAME_LENGTH = 15;
/** The maximum delay of a packet, in addition to the burst. */
const LATENCY_SECONDS = 0.025;
const DEFAULT_BURST_BITS = 4_294_967_296;
/** One full Ethernet frame. */
const MIN_BURST_BYTES = 1514;
const MAX_U32 = 0xffff_ffff;
const RETRY_MS = 10_000;

export interface BandwidthDeps {
  readonly registry: EndpointRegistry;
  readonly links: Pick<Links, "list" | "get" | "create" | "set" | "delete">;
  readonly control: TrafficControl;
  readonly logger: Logger;
}

interface Limits {
  /** To the workload. */
  readonly ingress?: TokenBucket;
  /** From the workload. */
  readonly egress?: TokenBucket;
}

/**
 * Returns the name of the ifb device of a workload.
 * @param attempt 0, or higher if other workloads already use the names before. (Calico uses the first name, and shares the device.)
 */
export const redirectDeviceName = (interfaceName: string, attempt = 0): string => {
  const text = attempt === 0 ? interfaceName : `${interfaceName} ${attempt}`;
  return `${REDIRECT_PREFIX}${createHash("sha512").update(text).digest("hex")}`.slice(0, NAME_LENGTH);
};

export class BandwidthLimits implements Reconciler {
  readonly name = "bandwidth limits";
  readonly #deps: BandwidthDeps;
  readonly #dirty: Set<string>;
  /** Interfaces with limits of calico-ts. */
  readonly #limited = new Set<string>();
  /** The ifb devices by workload interface, and the reverse. */
  readonly #deviceOf = new Map<string, string>();
  readonly #ownerOf = new Map<string, string>();
  readonly #failing = new Set<string>();
  /** Interfaces that are only checked: any difference is due to another program. */
  readonly #rechecked = new Set<string>();
  #needsRead = true;
  #hasRead = false;

  constructor(deps: BandwidthDeps) {
    this.#deps = deps;
    this.#dirty = deps.registry.watchWorkloads();
  }

  queueResync(): void {
    this.#needsRead = true;
  }

  apply(): ApplyOutcome {
    if (this.#needsRead) this.#readKernel();
    const failed: string[] = [];
    for (const name of this.#dirty) {
      if (!this.#limited.has(name) && !this.#has(name)) continue;
      try {
        const isChanged = this.#applyTo(name);
        if (isChanged && this.#rechecked.has(name))
          this.#deps.logger.warn("another program changed a bandwidth limit; restored it", { interface: name });
        this.#failing.delete(name);
      } catch (error) {
        // ENOENT may mean that the interface was deleted, or that the kernel has no token buckets.
        if (hasErrno(error, "ENODEV", "ENOENT") && this.#deps.links.get(name) === undefined) continue;
        failed.push(name);
        if (this.#failing.has(name)) continue; // already logged
        this.#failing.add(name);
        this.#deps.logger.warn("setting a bandwidth limit failed; retrying", {
          interface: name,
          setting: "ingressBandwidth, egressBandwidth of QoS annotations (sch_tbf, ifb, act_mirred)",
          error: describeError(error),
        });
      }
    }
    this.#dirty.clear();
    this.#rechecked.clear();
    for (const name of failed) this.#dirty.add(name);
    return failed.length === 0 ? {} : { againInMs: RETRY_MS };
  }

  #has(name: string): boolean {
    return Object.keys(this.#desired(name)).length > 0;
  }

  #desired(name: string): Limits {
    const workload = this.#deps.registry.activeWorkloads.get(name);
    return workload?.endpoint.state === "active" ? limitsOf(workload.endpoint.qosControls) : {};
  }

  /** Finds limits of an earlier run, also of deleted workloads, and changes by other programs. */
  #readKernel(): void {
    const links = new Map(this.#deps.links.list().map((link) => [link.name, link]));
    this.#findOwners(links);
    const { buckets } = this.#deps.control.limitedLinks();
    const devices = new Set<string>();
    for (const name of this.#deps.registry.activeWorkloads.keys()) {
      const device = this.#device(name);
      devices.add(device);
      if (isOwned(buckets.get(links.get(name)?.index ?? 0)) || links.has(device)) this.#limited.add(name);
      if (this.#hasRead && this.#limited.has(name) && !this.#dirty.has(name)) this.#rechecked.add(name);
      this.#dirty.add(name);
    }
    this.#hasRead = true;
    for (const link of links.values())
      if (link.kind === "ifb" && link.name.startsWith(REDIRECT_PREFIX) && !devices.has(link.name))
        this.#delete(link.index);
    this.#needsRead = false;
  }

  /** Reads from the kernel which workload uses which device. */
  #findOwners(links: ReadonlyMap<string, Link>): void {
    const { control, registry } = this.#deps;
    const devices = [...links.values()].filter(({ kind, name }) => kind === "ifb" && name.startsWith(REDIRECT_PREFIX));
    if (devices.length === 0) return;
    const byIndex = new Map(devices.map(({ index, name }) => [index, name]));
    const { ingress } = control.limitedLinks();
    for (const name of registry.activeWorkloads.keys()) {
      const index = links.get(name)?.index ?? 0;
      const device = ingress.has(index) ? byIndex.get(control.ingressRedirect(index) ?? 0) : undefined;
      if (device !== undefined && !this.#deviceOf.has(name)) this.#claim(device, name);
    }
  }

  /** Returns the name of the workload's device: its current one, or the first name that no other workload uses. */
  #device(name: string): string {
    const claimed = this.#deviceOf.get(name);
    if (claimed !== undefined) return claimed;
    for (let attempt = 0; ; attempt++) {
      const device = redirectDeviceName(name, attempt);
      if (!this.#ownerOf.has(device)) return device;
    }
  }

  #claim(device: string, name: string): void {
    if (this.#ownerOf.has(device)) return;
    this.#ownerOf.set(device, name);
    this.#deviceOf.set(name, device);
  }

  #disclaim(name: string): void {
    const device = this.#deviceOf.get(name);
    if (device !== undefined) this.#ownerOf.delete(device);
    this.#deviceOf.delete(name);
  }

  /** @returns true if anything was written */
  #applyTo(name: string): boolean {
    const { control, links } = this.#deps;
    const desired = this.#desired(name);
    const link = links.get(name);
    const device = links.get(this.#device(name));
    if (link === undefined) {
      // The queues were deleted with the interface, but the device still exists.
      if (device !== undefined) this.#delete(device.index);
      this.#disclaim(name);
      this.#limited.delete(name);
      return false;
    }
    this.#limited.add(name);
    let isChanged = false;
    const bucket = control.tokenBucket(link.index);
    if (desired.ingress !== undefined) {
      if (!sameBucket(bucket, desired.ingress)) {
        control.setTokenBucket(link.index, desired.ingress);
        isChanged = true;
      }
    } else if (isOwned(bucket)) control.deleteTokenBucket(link.index);
    if (desired.egress !== undefined) isChanged = this.#redirect(link, device, desired.egress) || isChanged;
    else if (device !== undefined) {
      if (control.ingressRedirect(link.index) === device.index) control.deleteIngress(link.index);
      this.#delete(device.index);
    }
    if (desired.egress === undefined) this.#disclaim(name);
    if (desired.ingress === undefined && desired.egress === undefined) this.#limited.delete(name);
    return isChanged;
  }

  #redirect(link: Link, found: Link | undefined, bucket: TokenBucket): boolean {
    const { control } = this.#deps;
    const name = this.#device(link.name);
    this.#claim(name, link.name);
    if (found === undefined) {
      this.#deps.links.create({ name, mtu: link.mtu, up: true, type: { kind: "ifb" } });
      const made = this.#deps.links.get(name);
      if (made === undefined) throw new Error(`device ${name} does not exist after its creation`);
      return this.#redirect(link, made, bucket);
    }
    let isChanged = !found.isUp;
    if (!found.isUp) this.#deps.links.set(found.index, { up: true });
    if (!sameBucket(control.tokenBucket(found.index), bucket)) {
      control.setTokenBucket(found.index, bucket);
      isChanged = true;
    }
    // Packets are redirected only after the device is up and limited.
    if (control.ingressRedirect(link.index) === found.index) return isChanged;
    if (control.limitedLinks().ingress.has(link.index)) control.deleteIngress(link.index);
    control.setIngressRedirect(link.index, found.index);
    return true;
  }

  #delete(index: number): void {
    try {
      this.#deps.links.delete(index);
    } catch (error) {
      if (!hasErrno(error, "ENODEV")) throw error;
    }
  }
}

function limitsOf(qos: ProtoWorkloadEndpoint["qosControls"]): Limits {
  const ingress = bucketOf(qos?.ingressBandwidth, qos?.ingressBurst, qos?.ingressPeakrate, qos?.ingressMinburst);
  const egress = bucketOf(qos?.egressBandwidth, qos?.egressBurst, qos?.egressPeakrate, qos?.egressMinburst);
  return { ...(ingress === undefined ? {} : { ingress }), ...(egress === undefined ? {} : { egress }) };
}

/** Units as in the annotations: rates and burst in bits, minburst in bytes. */
function bucketOf(bandwidth = 0, burst = 0, peakrate = 0, minburst = 0): TokenBucket | undefined {
  if (bandwidth <= 0) return undefined;
  const rate = Math.floor(bandwidth / 8);
  const bufferTicks = burstTicks(rate, Math.floor((burst || DEFAULT_BURST_BITS) / 8));
  const peakRate = Math.floor(peakrate / 8);
  return {
    bytesPerSecond: BigInt(rate),
    limit: queueLimit(rate, bufferTicks),
    bufferTicks,
    ...(peakRate > rate
      ? {
          peak: {
            bytesPerSecond: BigInt(peakRate),
            ticks: burstTicks(peakRate, Math.max(minburst, MIN_BURST_BYTES)),
          },
        }
      : {}),
  };
}

/**
 * Returns the length of the queue in bytes. As in Calico, the burst is added in ticks, not in bytes: a shorter queue would
 * drop packets that Calico does not drop.
 */
const queueLimit = (bytesPerSecond: number, bufferTicks: number): number =>
  Math.min(MAX_U32, Math.floor(bytesPerSecond * LATENCY_SECONDS) + bufferTicks);

/**
 * True if Felix (calico-ts or Calico) set this token bucket. `tc` and the CNI bandwidth plugin add the burst in bytes, so their
 * queues have another length, except at 125 Mbit/s, where one byte takes one tick.
 */
const isOwned = (bucket: TokenBucket | undefined): boolean =>
  bucket !== undefined && bucket.limit === queueLimit(Number(bucket.bytesPerSecond), bucket.bufferTicks);

const sameBucket = (a: TokenBucket | undefined, b: TokenBucket): boolean =>
  a !== undefined &&
  a.bytesPerSecond === b.bytesPerSecond &&
  a.limit === b.limit &&
  a.bufferTicks === b.bufferTicks &&
  a.peak?.bytesPerSecond === b.peak?.bytesPerSecond &&
  a.peak?.ticks === b.peak?.ticks;
