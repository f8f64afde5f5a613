// Keeps what is wrong out of the calculation: a bad value counts as absent, is reported once by key and reason, and
// everything else goes on.
import { countSliceMembers } from "../calc/index.ts";
import type { SyncerUpdate } from "../datastore/index.ts";
import type { Logger } from "../lib/log.ts";
import {
  keyPath,
  type NetworkSet,
  networkSetLabels,
  type Policy,
  type Resource,
  type RuleSide,
  tryParseSelector,
  type WorkloadEndpoint,
} from "../model/index.ts";

export interface ValidationFilterOptions {
  readonly log: Logger;
  /** Workloads may send from addresses that are not theirs, where their annotation says so. */
  readonly allowSpoofing: boolean;
  /** Told of every entry that is left out. */
  readonly onRefused?: () => void;
}

/** Addresses times ports of one EndpointSlice: an object of 1.5 MB could ask for 10⁹ members of an IP set. */
const MOST_SLICE_MEMBERS = 100_000;
const SHOWN_SELECTOR = 200;

/** Cached valid selectors; beyond that the cache is emptied. It saves work for rules that repeat a selector. */
const REMEMBERED = 1000;

export class ValidationFilter {
  readonly #options: ValidationFilterOptions;
  /** By key, the reason that was told. */
  readonly #reported = new Map<string, string>();
  readonly #goodSelectors = new Set<string>();

  constructor(options: ValidationFilterOptions) {
    this.#options = options;
  }

  /** The update, without its value when that is not valid. */
  check(given: SyncerUpdate): SyncerUpdate {
    const update = given.key.type === "networkSet" ? withOwnLabels(given.key.name, given) : given;
    const reason = update.value === undefined ? undefined : this.#faultOf(update);
    if (reason === undefined) {
      if (this.#reported.size > 0) this.#reported.delete(keyPath(update.key));
      return update;
    }
    this.#report(keyPath(update.key), reason);
    return { ...update, value: undefined } as SyncerUpdate;
  }

  /** An entry that could not even be read. */
  reportUnreadable(path: string, reason: string): void {
    this.#report(path, reason);
  }

  #report(path: string, reason: string): void {
    if (this.#reported.get(path) === reason) return;
    this.#reported.set(path, reason);
    this.#options.onRefused?.();
    this.#options.log.warn("an entry of the datastore is not valid; what is wrong with it is not used", {
      key: path,
      reason,
    });
  }

  #faultOf(update: SyncerUpdate): string | undefined {
    switch (update.key.type) {
      case "workloadEndpoint":
        return this.#workloadFault(update.value as WorkloadEndpoint);
      case "policy":
        return this.#policyFault(update.value as Policy);
      case "resource":
        return update.key.kind === "KubernetesEndpointSlice" ? sliceFault(update.value as Resource) : undefined;
      default:
        return undefined;
    }
  }

  #workloadFault(endpoint: WorkloadEndpoint): string | undefined {
    if (endpoint.name === "") return "the workload endpoint names no interface";
    if ((endpoint.allowSpoofedSourcePrefixes ?? []).length > 0 && !this.#options.allowSpoofing)
      return "allowSpoofedSourcePrefixes is set, but WorkloadSourceSpoofing does not allow it";
    return undefined;
  }

  #policyFault(policy: Policy): string | undefined {
    const selectors = [policy.selector];
    for (const { source, destination } of [...policy.inboundRules, ...policy.outboundRules])
      for (const side of [source, destination] as readonly RuleSide[])
        selectors.push(side.selector ?? "", side.notSelector ?? "");
    const bad = selectors.find((text) => !this.#isSelector(text));
    return bad === undefined ? undefined : `selector ${JSON.stringify(bad.slice(0, SHOWN_SELECTOR))} cannot be read`;
  }

  #isSelector(text: string): boolean {
    if (text === "" || this.#goodSelectors.has(text)) return true;
    if (tryParseSelector(text) === undefined) return false;
    if (this.#goodSelectors.size >= REMEMBERED) this.#goodSelectors.clear();
    this.#goodSelectors.add(text);
    return true;
  }
}

function sliceFault(slice: Resource): string | undefined {
  const count = countSliceMembers(slice);
  if (count <= MOST_SLICE_MEMBERS) return undefined;
  return `its addresses times its ports are ${count}; at most ${MOST_SLICE_MEMBERS} are used`;
}

/** Removes labels that claim another namespace: a Typha of Calico, or of an older version, leaves them in place. */
function withOwnLabels(name: string, update: SyncerUpdate): SyncerUpdate {
  const [namespace = "", set] = name.split("/");
  if (set === undefined || update.value === undefined) return update; // global sets are the administrator's
  const value = update.value as NetworkSet;
  return { ...update, value: { ...value, labels: networkSetLabels(value.labels, namespace) } } as SyncerUpdate;
}
