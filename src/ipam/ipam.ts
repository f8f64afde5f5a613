// The library's face: one object per datastore, safe to use from many tasks, hosts and processes at once.
import type { Cidr, IpAddress } from "../lib/ip/ip.ts";
import { silentLogger } from "../lib/log/log.ts";
import type { IpamConfig } from "../model/index.ts";
import { releaseBlock, type GivingUp } from "./blocks/affinities.ts";
import type { InputsRequest } from "./assign/assignment-inputs.ts";
import { type AssignAddressRequest, assignAddress } from "./assign/assign-address.ts";
import { type Assignments, type AutoAssignRequest, autoAssign } from "./assign/auto-assign.ts";
import type { Owner } from "./blocks/block.ts";
import { collectExpiredCooldowns } from "./release/cooldown.ts";
import { changeConfig, readConfig } from "./config.ts";
import { type Finding, findInconsistencies, readState, repair } from "./reports/consistency.ts";
import { Context, type IpamOptions } from "./context.ts";
import { ensureBlock } from "./assign/ensure-block.ts";
import { type ClaimResult, claimPrefix, giveUpHost, giveUpPool, giveUpPrefix, removeHost } from "./blocks/hosts.ts";
import {
  changeOwners,
  type OwnedAddress,
  type OwnerChange,
  type Owners,
  setOwners,
} from "./blocks/owner-attributes.ts";
import { type Allocation, addressesOfHandle, allocationOf } from "./reports/queries.ts";
import { type ReleaseRequest, type ReleaseResult, releaseAddresses } from "./release/release.ts";
import { type HandleRelease, type HandleReleaseOptions, releaseByHandle } from "./release/release-handle.ts";
import { upgradeHost } from "./blocks/upgrade-affinities.ts";
import { readUtilization, type UtilizationReport } from "./reports/utilization.ts";

export class Ipam {
  readonly #options: IpamOptions;

  constructor(options: Pick<IpamOptions, "datastore"> & Partial<IpamOptions>) {
    this.#options = { log: silentLogger, nowMs: Date.now, random: Math.random, ...options };
  }

  /** Addresses of one family for a host. Fewer than asked for is no error: the result says why. */
  autoAssign(request: AutoAssignRequest, signal?: AbortSignal): Promise<Assignments> {
    return autoAssign(this.#context(signal), request);
  }

  /**
   * Exactly this address, or an error saying who has it.
   * @returns how many addresses the handle counts now, where it was raised; it may count too many, never too few
   */
  assignAddress(request: AssignAddressRequest, signal?: AbortSignal): Promise<number | undefined> {
    return assignAddress(this.#context(signal), request);
  }

  release(requests: readonly ReleaseRequest[], signal?: AbortSignal): Promise<ReleaseResult> {
    return releaseAddresses(this.#context(signal), requests);
  }

  /** All addresses of a handle; `UnknownHandle` when there is no such handle. */
  async releaseByHandle(handleId: string, signal?: AbortSignal): Promise<readonly IpAddress[]> {
    return (await releaseByHandle(this.#context(signal), handleId)).released;
  }

  /** The same under a condition, or with other writes in the same moment; the result tells whether they were done. */
  releaseByHandleWith(handleId: string, options: HandleReleaseOptions, signal?: AbortSignal): Promise<HandleRelease> {
    return releaseByHandle(this.#context(signal), handleId, options);
  }

  /** A block of its own for a host, with nothing taken from it. */
  ensureBlock(request: InputsRequest, signal?: AbortSignal): Promise<Cidr | undefined> {
    return ensureBlock(this.#context(signal), request);
  }

  addressesOfHandle(handleId: string, signal?: AbortSignal): Promise<readonly IpAddress[]> {
    return addressesOfHandle(this.#context(signal), handleId);
  }

  /** What is known about an address; `NotAssigned` or `InCooldown` otherwise. */
  allocationOf(address: IpAddress, signal?: AbortSignal): Promise<Allocation> {
    return allocationOf(this.#context(signal), address);
  }

  setOwners(change: OwnerChange, signal?: AbortSignal): Promise<void> {
    return setOwners(this.#context(signal), change);
  }

  /** Changes who uses a handle's addresses, and tells which there are; none when there is no such handle. */
  changeOwners(
    handleId: string,
    change: (owners: Owners) => Owners,
    signal?: AbortSignal,
  ): Promise<readonly OwnedAddress[]> {
    return changeOwners(this.#context(signal), handleId, change);
  }

  claimAffinity(cidr: Cidr, owner: Owner, signal?: AbortSignal): Promise<ClaimResult> {
    return claimPrefix(this.#context(signal), cidr, owner);
  }

  /** Gives up the owner's blocks inside a prefix. */
  releaseAffinity(cidr: Cidr, owner: Owner, options: GivingUp, signal?: AbortSignal): Promise<void> {
    return giveUpPrefix(this.#context(signal), cidr, owner, options);
  }

  /** Gives up exactly this block; false when the owner has no such block. */
  releaseBlockAffinity(block: Cidr, owner: Owner, options: GivingUp, signal?: AbortSignal): Promise<boolean> {
    return releaseBlock(this.#context(signal), owner, block, options);
  }

  releaseHostAffinities(owner: Owner, options: GivingUp, signal?: AbortSignal): Promise<void> {
    return giveUpHost(this.#context(signal), owner, options);
  }

  releasePoolAffinities(pool: Cidr, signal?: AbortSignal): Promise<void> {
    return giveUpPool(this.#context(signal), pool);
  }

  /** A node leaves the cluster. Its addresses stay until they are released. */
  removeHost(host: string, signal?: AbortSignal): Promise<void> {
    return removeHost(this.#context(signal), { type: "host", name: host });
  }

  /** Puts in order what earlier programs left for this host. */
  upgradeHost(owner: Owner, signal?: AbortSignal): Promise<void> {
    return upgradeHost(this.#context(signal), owner);
  }

  /** @param pools names or CIDRs; none = all */
  utilization(pools: readonly string[] = [], signal?: AbortSignal): Promise<UtilizationReport> {
    return readUtilization(this.#context(signal), pools);
  }

  /** Frees addresses whose cooldown is over in blocks that nobody writes; gives back those blocks. */
  collectExpiredCooldowns(blocks?: readonly Cidr[], signal?: AbortSignal): Promise<readonly Cidr[]> {
    return collectExpiredCooldowns(this.#context(signal), blocks);
  }

  /** Disagreements between blocks, affinities and handles. */
  async inconsistencies(signal?: AbortSignal): Promise<readonly Finding[]> {
    return findInconsistencies(await readState(this.#context(signal)));
  }

  /** Puts findings right; gives back those that need a person. */
  async repair(findings: readonly Finding[], signal?: AbortSignal): Promise<readonly Finding[]> {
    const context = this.#context(signal);
    const nodes = new Set((await context.records.resources("Node")).map((node) => node.metadata.name));
    const left: Finding[] = [];
    for (const finding of findings) if (!(await repair(context, finding, nodes))) left.push(finding);
    return left;
  }

  config(signal?: AbortSignal): Promise<IpamConfig> {
    return readConfig(this.#context(signal));
  }

  configure(change: Partial<IpamConfig>, signal?: AbortSignal): Promise<IpamConfig> {
    return changeConfig(this.#context(signal), change);
  }

  #context(signal: AbortSignal | undefined): Context {
    return new Context(this.#options, signal);
  }
}
