// Local endpoints with their policies in order. Works only on what changed, at flush, and says nothing before the first
// complete picture: an endpoint with half of its policies would be open or closed by accident.
import type { HostEndpoint, Tier, WorkloadEndpoint, WorkloadEndpointKey } from "../../model/index.ts";
import { type EndpointKey, endpointKeyText } from "../ids.ts";
import type { ProtoHostEndpoint, ProtoWorkloadEndpoint } from "../messages.ts";
import type { ActivePolicy, LocalEndpoint } from "./active-rules.ts";
import { type ComputedEndpointData, hostMessage, workloadMessage } from "./endpoint-message.ts";
import { splitByPurpose, TierTable } from "./tiers.ts";

export interface PolicyResolverListener {
  onWorkloadEndpoint(key: WorkloadEndpointKey, endpoint: ProtoWorkloadEndpoint): void;
  onHostEndpoint(endpointId: string, endpoint: ProtoHostEndpoint): void;
  onEndpointGone(key: EndpointKey): void;
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

  /** What is given replaces what was known under that name; undefined forgets it. */
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
    for (const [id, key] of this.#dirty) this.#say(id, key);
    this.#dirty.clear();
  }

  #say(id: string, key: EndpointKey): void {
    const endpoint = this.#endpoints.endpoint(id);
    if (endpoint === undefined) {
      this.#listener.onEndpointGone(key);
      return;
    }
    const policies: ActivePolicy[] = [...endpoint.policies].sort(this.#tiers.comparePolicies);
    const tiers = splitByPurpose(policies, this.#tiers);
    if (key.type === "workloadEndpoint") {
      const value = endpoint.value as WorkloadEndpoint;
      this.#listener.onWorkloadEndpoint(key, workloadMessage(value, tiers, this.#computed.get(id) ?? {}));
    } else this.#listener.onHostEndpoint(key.endpoint, hostMessage(endpoint.value as HostEndpoint, tiers));
  }
}

function some<T>(things: Iterable<T>, test: (thing: T) => boolean): boolean {
  for (const thing of things) if (test(thing)) return true;
  return false;
}

function dropUndefined<T extends object>(object: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}
