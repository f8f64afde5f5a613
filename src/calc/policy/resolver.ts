// Emits local endpoints with their policies in order. At each flush, only changed endpoints are processed. Nothing is
// emitted before the graph is in sync: an endpoint with only some of its policies could allow or deny the wrong traffic.
// For the same reason an endpoint is held back until the latest versions of all its policies were emitted. The dataplane
// keeps the endpoint as it was, and nothing for a new one: its interface stays closed.
import type { HostEndpoint, Tier, WorkloadEndpoint, WorkloadEndpointKey } from "../../model/index.ts";
import { type EndpointKey, endpointKeyText } from "../ids.ts";
import type { ProtoHostEndpoint, ProtoWorkloadEndpoint } from "../messages.ts";
import type { IndexedPolicy, LocalEndpoint } from "./active-rules.ts";
import { type ComputedEndpointData, hostMessage, workloadMessage } from "./endpoint-message.ts";
import { splitByHook, TierTable } from "./tiers.ts";

export interface PolicyResolverListener {
  onWorkloadEndpoint(key: WorkloadEndpointKey, endpoint: ProtoWorkloadEndpoint): void;
  onHostEndpoint(endpointId: string, endpoint: ProtoHostEndpoint): void;
  onEndpointRemove(key: EndpointKey): void;
}

/** Returns true if the latest version of the policy or profile was emitted. */
export interface SettledRules {
  isPolicySettled(id: string): boolean;
  isProfileSettled(name: string): boolean;
}

/** The policies and profiles to which an endpoint in the dataplane refers. */
interface References {
  readonly policies: readonly IndexedPolicy[];
  readonly profiles: readonly string[];
}

export class PolicyResolver {
  readonly #tiers = new TierTable();
  readonly #computed = new Map<string, ComputedEndpointData>();
  readonly #dirty = new Map<string, EndpointKey>();
  readonly #emitted = new Map<string, References>();
  /** For each endpoint that is held back, a policy that is not settled. */
  readonly #held = new Map<string, IndexedPolicy | undefined>();
  readonly #listener: PolicyResolverListener;
  readonly #endpoints: {
    endpoint(id: string): LocalEndpoint | undefined;
    endpoints(): Iterable<LocalEndpoint>;
  };
  #isInSync = false;

  constructor(
    endpoints: { endpoint(id: string): LocalEndpoint | undefined; endpoints(): Iterable<LocalEndpoint> },
    listener: PolicyResolverListener,
  ) {
    this.#endpoints = endpoints;
    this.#listener = listener;
  }

  get tierCount(): number {
    return this.#tiers.size;
  }

  setInSync(): void {
    this.#isInSync = true;
  }

  markDirty(key: EndpointKey, id = endpointKeyText(key)): void {
    this.#dirty.set(id, key);
  }

  setTier(name: string, tier: Tier | undefined): void {
    if (Bun.deepEquals(this.#tiers.get(name), tier, true)) return;
    this.#tiers.set(name, tier);
    for (const endpoint of this.#endpoints.endpoints())
      if (find(endpoint.policies, (active) => active.policy.tier === name) !== undefined)
        this.#dirty.set(endpoint.id, endpoint.key);
  }

  /** Merges `data` into the data of the endpoint. A field that is set to undefined is deleted. */
  setComputed(
    key: WorkloadEndpointKey,
    data: { readonly [K in keyof ComputedEndpointData]: ComputedEndpointData[K] | undefined },
  ): void {
    const id = endpointKeyText(key);
    const merged = dropUndefined<ComputedEndpointData>({ ...this.#computed.get(id), ...data });
    if (Object.keys(merged).length === 0) this.#computed.delete(id);
    else this.#computed.set(id, merged);
    this.#dirty.set(id, key);
  }

  flush(rules: SettledRules): void {
    if (!this.#isInSync) return;
    for (const [id, key] of this.#dirty) if (this.#tryEmit(id, key, rules)) this.#dirty.delete(id);
  }

  /** Returns true if the endpoint is held back. */
  isHeld(id: string): boolean {
    return this.#held.has(id);
  }

  /** Returns the IDs of policies and the names of profiles to which endpoints that are held back refer in the dataplane. */
  heldReferences(): { readonly policies: ReadonlySet<string>; readonly profiles: ReadonlySet<string> } {
    const policies = new Set<string>();
    const profiles = new Set<string>();
    for (const endpointId of this.#held.keys()) {
      const emitted = this.#emitted.get(endpointId);
      for (const { id } of emitted?.policies ?? []) policies.add(id);
      for (const name of emitted?.profiles ?? []) profiles.add(name);
    }
    return { policies, profiles };
  }

  /** Returns false if the endpoint is held back. */
  #tryEmit(id: string, key: EndpointKey, rules: SettledRules): boolean {
    const endpoint = this.#endpoints.endpoint(id);
    if (endpoint === undefined) {
      this.#held.delete(id);
      this.#emitted.delete(id);
      this.#listener.onEndpointRemove(key);
      return true;
    }
    const blocker = this.#held.get(id);
    if (blocker !== undefined && endpoint.policies.has(blocker) && !rules.isPolicySettled(blocker.id)) return false;
    const unsettled = find(endpoint.policies, (policy) => !rules.isPolicySettled(policy.id));
    if (unsettled !== undefined || !endpoint.value.profileIds.every((name) => rules.isProfileSettled(name))) {
      this.#held.set(id, unsettled);
      return false;
    }
    this.#held.delete(id);
    this.#emit(endpoint);
    return true;
  }

  #emit({ id, key, policies: unsorted, value }: LocalEndpoint): void {
    const policies: IndexedPolicy[] = [...unsorted].sort(this.#tiers.comparePolicies);
    this.#emitted.set(id, { policies, profiles: value.profileIds });
    const tiers = splitByHook(policies, this.#tiers);
    if (key.type === "workloadEndpoint")
      this.#listener.onWorkloadEndpoint(
        key,
        workloadMessage(value as WorkloadEndpoint, tiers, this.#computed.get(id) ?? {}),
      );
    else this.#listener.onHostEndpoint(key.endpoint, hostMessage(value as HostEndpoint, tiers));
  }
}

function find<T>(elements: Iterable<T>, test: (element: T) => boolean): T | undefined {
  for (const element of elements) if (test(element)) return element;
  return undefined;
}

function dropUndefined<T extends object>(object: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}
