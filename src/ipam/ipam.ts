// Defines `Ipam`, the interface of this module: one object per datastore, safe for concurrent use by tasks, hosts and
// processes.
import type { Cidr, IpAddress } from "../lib/ip/ip.ts";
import { silentLogger } from "../lib/log/log.ts";
import type { IpamConfig } from "../model/index.ts";
import { releaseBlockAffinity, type ReleaseBlocksOptions } from "./blocks/affinities.ts";
import type { InputsRequest } from "./assign/assignment-inputs.ts";
import { type AssignAddressRequest, assignAddress } from "./assign/assign-address.ts";
import { type Assignments, type AutoAssignRequest, autoAssign } from "./assign/auto-assign.ts";
import type { BlockOwner } from "./blocks/block.ts";
import { collectExpiredCooldowns } from "./release/cooldown.ts";
import { changeConfig, readConfig } from "./config.ts";
import { type Finding, findInconsistencies, readState, repair } from "./reports/consistency.ts";
import { Context, type IpamOptions } from "./context.ts";
import { ensureBlock } from "./assign/ensure-block.ts";
import {
  type ClaimResult,
  claimPrefix,
  releaseHostAffinities,
  releasePoolAffinities,
  releasePrefixAffinities,
  removeHost,
} from "./blocks/hosts.ts";
import {
  updateOwnerAttributes,
  type OwnedAddress,
  type OwnerAttributesChange,
  type OwnerAttributes,
  setOwnerAttributes,
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

  /** Assigns addresses of one family to a host. Fewer addresses than requested are not an error; the result gives the reason. */
  autoAssign(request: AutoAssignRequest, signal?: AbortSignal): Promise<Assignments> {
    return autoAssign(this.#context(signal), request);
  }

  /**
   * Assigns exactly this address.
   * @returns the handle's address count if it was incremented. After a crash it may be too high, never too low.
   * @throws AddressTaken with the handle that has the address
   */
  assignAddress(request: AssignAddressRequest, signal?: AbortSignal): Promise<number | undefined> {
    return assignAddress(this.#context(signal), request);
  }

  release(requests: readonly ReleaseRequest[], signal?: AbortSignal): Promise<ReleaseResult> {
    return releaseAddresses(this.#context(signal), requests);
  }

  /** Releases all addresses of a handle. @throws UnknownHandle */
  async releaseByHandle(handleId: string, signal?: AbortSignal): Promise<readonly IpAddress[]> {
    return (await releaseByHandle(this.#context(signal), handleId)).released;
  }

  /** Like `releaseByHandle`. Optionally checks the pod, and does extra writes in the same transaction. */
  releaseByHandleWith(handleId: string, options: HandleReleaseOptions, signal?: AbortSignal): Promise<HandleRelease> {
    return releaseByHandle(this.#context(signal), handleId, options);
  }

  /** Ensures that a host owns a block, without assigning an address. */
  ensureBlock(request: InputsRequest, signal?: AbortSignal): Promise<Cidr | undefined> {
    return ensureBlock(this.#context(signal), request);
  }

  addressesOfHandle(handleId: string, signal?: AbortSignal): Promise<readonly IpAddress[]> {
    return addressesOfHandle(this.#context(signal), handleId);
  }

  /** @throws NotAssigned, InCooldown */
  allocationOf(address: IpAddress, signal?: AbortSignal): Promise<Allocation> {
    return allocationOf(this.#context(signal), address);
  }

  setOwnerAttributes(change: OwnerAttributesChange, signal?: AbortSignal): Promise<void> {
    return setOwnerAttributes(this.#context(signal), change);
  }

  /** Changes the owner attributes of a handle's addresses. Returns the addresses; none if the handle does not exist. */
  updateOwnerAttributes(
    handleId: string,
    change: (owners: OwnerAttributes) => OwnerAttributes,
    signal?: AbortSignal,
  ): Promise<readonly OwnedAddress[]> {
    return updateOwnerAttributes(this.#context(signal), handleId, change);
  }

  claimAffinity(cidr: Cidr, owner: BlockOwner, signal?: AbortSignal): Promise<ClaimResult> {
    return claimPrefix(this.#context(signal), cidr, owner);
  }

  /** Releases the owner's blocks inside a prefix. */
  releaseAffinity(cidr: Cidr, owner: BlockOwner, options: ReleaseBlocksOptions, signal?: AbortSignal): Promise<void> {
    return releasePrefixAffinities(this.#context(signal), cidr, owner, options);
  }

  /** Releases exactly this block; false if the owner has no affinity for it. */
  releaseBlockAffinity(
    block: Cidr,
    owner: BlockOwner,
    options: ReleaseBlocksOptions,
    signal?: AbortSignal,
  ): Promise<boolean> {
    return releaseBlockAffinity(this.#context(signal), owner, block, options);
  }

  releaseHostAffinities(owner: BlockOwner, options: ReleaseBlocksOptions, signal?: AbortSignal): Promise<void> {
    return releaseHostAffinities(this.#context(signal), owner, options);
  }

  releasePoolAffinities(pool: Cidr, signal?: AbortSignal): Promise<void> {
    return releasePoolAffinities(this.#context(signal), pool);
  }

  /** Removes a node that left the cluster. Its addresses stay allocated until they are released. */
  removeHost(host: string, signal?: AbortSignal): Promise<void> {
    return removeHost(this.#context(signal), { type: "host", name: host });
  }

  /** Adds the labels that affinities written by earlier versions lack (Kubernetes only). */
  upgradeHost(owner: BlockOwner, signal?: AbortSignal): Promise<void> {
    return upgradeHost(this.#context(signal), owner);
  }

  /** @param pools names or CIDRs; by default all */
  utilization(pools: readonly string[] = [], signal?: AbortSignal): Promise<UtilizationReport> {
    return readUtilization(this.#context(signal), pools);
  }

  /** Frees addresses whose cooldown has expired, in blocks that are not written otherwise. Returns the blocks written. */
  collectExpiredCooldowns(blocks?: readonly Cidr[], signal?: AbortSignal): Promise<readonly Cidr[]> {
    return collectExpiredCooldowns(this.#context(signal), blocks);
  }

  /** Finds inconsistencies between blocks, affinities and handles. */
  async inconsistencies(signal?: AbortSignal): Promise<readonly Finding[]> {
    return findInconsistencies(await readState(this.#context(signal)));
  }

  /** Repairs findings. Returns those that cannot be repaired automatically. */
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
