// Emits local endpoints with their policies in order. At each flush, only changed endpoints are processed. Nothing is
// emitted before the graph is in sync: an endpoint with only some of its policies could allow or deny the wrong traffic.
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

export class PolicyResolver {
  readonly #tiers = new TierTable();
  readonly #computed = new Map<string, ComputedEndpointData>();
  readonly #dirty = new Map<string, EndpointKey>();
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
      if (some(endpoint.policies, (active) => active.policy.tier === name)) this.#dirty.set(endpoint.id, endpoint.key);
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

  flush(): void {
    if (!this.#isInSync) return;
    for (const [id, key] of this.#dirty) this.#emit(id, key);
    this.#dirty.clear();
  }

  #emit(id: string, key: EndpointKey): void {
    const endpoint = this.#endpoints.endpoint(id);
    if (endpoint === undefined) {
      this.#listener.onEndpointRemove(key);
      return;
    }
    const policies: IndexedPolicy[] = [...endpoint.policies].sort(this.#tiers.comparePolicies);
    const tiers = splitByHook(policies, this.#tiers);
    if (key.type === "workloadEndpoint") {
      const value = endpoint.value as WorkloadEndpoint;
      this.#listener.onWorkloadEndpoint(key, workloadMessage(value, tiers, this.#computed.get(id) ?? {}));
    } else this.#listener.onHostEndpoint(key.endpoint, hostMessage(endpoint.value as HostEndpoint, tiers));
  }
}

function some<T>(elements: Iterable<T>, test: (element: T) => boolean): boolean {
  for (const element of elements) if (test(element)) return true;
  return false;
}

function dropUndefined<T extends object>(object: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}
