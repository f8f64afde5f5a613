// Bandwidth limits of workloads, in the kernel's queues: a token bucket on the workload's interface for what it
// receives; what it sends is redirected to a device of its own (ifb), which has a token bucket too.
//
// Other programs limit interfaces as well (the stock bandwidth plugin of CNI does, in the same way). Felix recognises its own
// token bucket by the length of its queue (`queueLimit`) and its redirect by the name of the device, and removes nothing else.
// It does not mark the interface: its alias names the workload that owns it, which the CNI plugin relies on.
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
import { describeError, type Logger } from "../../lib/log.ts";
import type { ApplyOutcome, Reconciler } from "../manager.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

export const REDIRECT_PREFIX = "bwcali";
const NAME_LENGTH = 15;
/** How long a packet may wait for its turn, beside the burst. */
const LATENCY_SECONDS = 0.025;
const DEFAULT_BURST_BITS = 4_294_967_296;
/** One full Ethernet frame. */
const LEAST_BURST_BYTES = 1514;
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
 * The device that receives what a workload sends.
 * @param attempt counts the names that other workloads have already; Calico uses the first name and shares a device then
 */
export const redirectDeviceName = (interfaceName: string, attempt = 0): string => {
  const text = attempt === 0 ? interfaceName : `${interfaceName} ${attempt}`;
  return `${REDIRECT_PREFIX}${createHash("sha512").update(text).digest("hex")}`.slice(0, NAME_LENGTH);
};

export class BandwidthLimits implements Reconciler {
  readonly name = "bandwidth limits";
  readonly #deps: BandwidthDeps;
  readonly #dirty: Set<string>;
  /** Interfaces we limit. */
  readonly #limited = new Set<string>();
  /** The redirect devices in use, by workload interface and the other way round. */
  readonly #deviceOf = new Map<string, string>();
  readonly #ownerOf = new Map<string, string>();
  readonly #failing = new Set<string>();
  /** Set before and only looked at again. */
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
    if (this.#needsRead) this.#findOurs();
    const failed: string[] = [];
    for (const name of this.#dirty) {
      if (!this.#limited.has(name) && !this.#has(name)) continue;
      try {
        const isChanged = this.#applyTo(name);
        if (isChanged && this.#rechecked.has(name))
          this.#deps.logger.warn("somebody changed a bandwidth limit of ours; repaired", { interface: name });
        this.#failing.delete(name);
      } catch (error) {
        // Gone meanwhile: its next state brings us back. A kernel without token buckets says the same of the queue.
        if (hasErrno(error, "ENODEV", "ENOENT") && this.#deps.links.get(name) === undefined) continue;
        failed.push(name);
        if (this.#failing.has(name)) continue; // said before
        this.#failing.add(name);
        this.#deps.logger.warn("bandwidth limit could not be set; the workload goes without it; trying again", {
          interface: name,
          setting: "ingressBandwidth, egressBandwidth of its QoS annotations (the kernel's sch_tbf, ifb, act_mirred)",
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
    return Object.keys(this.#wanted(name)).length > 0;
  }

  #wanted(name: string): Limits {
    const workload = this.#deps.registry.activeWorkloads.get(name);
    return workload?.endpoint.state === "active" ? limitsOf(workload.endpoint.qosControls) : {};
  }

  /** What an earlier run of ours left, also where no workload is any more; and what others changed. */
  #findOurs(): void {
    const links = new Map(this.#deps.links.list().map((link) => [link.name, link]));
    this.#findOwners(links);
    const { buckets } = this.#deps.control.limitedLinks();
    const devices = new Set<string>();
    for (const name of this.#deps.registry.activeWorkloads.keys()) {
      const device = this.#device(name);
      devices.add(device);
      if (isOurs(buckets.get(links.get(name)?.index ?? 0)) || links.has(device)) this.#limited.add(name);
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

  /** The workload's device, or the name that it would get: the first that no other workload has. */
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

  /** @returns whether anything had to be written */
  #applyTo(name: string): boolean {
    const { control, links } = this.#deps;
    const wanted = this.#wanted(name);
    const link = links.get(name);
    const device = links.get(this.#device(name));
    if (link === undefined) {
      // The interface took its queues along; the device stayed.
      if (device !== undefined) this.#delete(device.index);
      this.#disclaim(name);
      this.#limited.delete(name);
      return false;
    }
    this.#limited.add(name);
    let isChanged = false;
    const bucket = control.tokenBucket(link.index);
    if (wanted.ingress !== undefined) {
      if (!sameBucket(bucket, wanted.ingress)) {
        control.setTokenBucket(link.index, wanted.ingress);
        isChanged = true;
      }
    } else if (isOurs(bucket)) control.deleteTokenBucket(link.index);
    if (wanted.egress !== undefined) isChanged = this.#redirect(link, device, wanted.egress) || isChanged;
    else if (device !== undefined) {
      if (control.ingressRedirect(link.index) === device.index) control.deleteIngress(link.index);
      this.#delete(device.index);
    }
    if (wanted.egress === undefined) this.#disclaim(name);
    if (wanted.ingress === undefined && wanted.egress === undefined) this.#limited.delete(name);
    return isChanged;
  }

  #redirect(link: Link, found: Link | undefined, bucket: TokenBucket): boolean {
    const { control } = this.#deps;
    const name = this.#device(link.name);
    this.#claim(name, link.name);
    if (found === undefined) {
      this.#deps.links.create({ name, mtu: link.mtu, up: true, type: { kind: "ifb" } });
      const made = this.#deps.links.get(name);
      if (made === undefined) throw new Error(`device ${name} is gone as soon as it was made`);
      return this.#redirect(link, made, bucket);
    }
    let isChanged = !found.isUp;
    if (!found.isUp) this.#deps.links.set(found.index, { up: true });
    if (!sameBucket(control.tokenBucket(found.index), bucket)) {
      control.setTokenBucket(found.index, bucket);
      isChanged = true;
    }
    // Packets take the detour only once the device lets them pass.
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

/** Rates and burst in bits, the smallest portion of a peak in bytes, as users write them. */
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
            ticks: burstTicks(peakRate, Math.max(minburst, LEAST_BURST_BYTES)),
          },
        }
      : {}),
  };
}

/**
 * Bytes that may wait. Like Calico, this adds the burst in ticks, not in bytes: a shorter queue would drop packets that
 * Calico's does not.
 */
const queueLimit = (bytesPerSecond: number, bufferTicks: number): number =>
  Math.min(MAX_U32, Math.floor(bytesPerSecond * LATENCY_SECONDS) + bufferTicks);

/**
 * Whether Felix (calico-ts or Calico) set this token bucket. `tc` and the bandwidth plugin of CNI add the burst in bytes, so
 * their queues have another length, except at 125 Mbit/s, where a byte takes one tick.
 */
const isOurs = (bucket: TokenBucket | undefined): boolean =>
  bucket !== undefined && bucket.limit === queueLimit(Number(bucket.bytesPerSecond), bucket.bufferTicks);

const sameBucket = (a: TokenBucket | undefined, b: TokenBucket): boolean =>
  a !== undefined &&
  a.bytesPerSecond === b.bytesPerSecond &&
  a.limit === b.limit &&
  a.bufferTicks === b.bufferTicks &&
  a.peak?.bytesPerSecond === b.peak?.bytesPerSecond &&
  a.peak?.ticks === b.peak?.ticks;
