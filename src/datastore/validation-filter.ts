// Keeps invalid values from the consumers of a syncer, in Felix and in Typha: an invalid value counts as absent and is
// reported once per change, by key and reason; everything else is passed on. Selectors are not checked here: a value
// with a selector that does not parse is rejected where it is decoded, and arrives here as unreadable.
import type { Logger } from "../lib/log/log.ts";
import {
  countSliceMembers,
  ignoreUnreadable,
  keyPath,
  type NetworkSet,
  networkSetLabels,
  readEndpointSlice,
  type Resource,
  type ResourceSchema,
  type WorkloadEndpoint,
} from "../model/index.ts";
import type { SyncerSink, SyncerUpdate } from "./syncer.ts";

export interface ValidationFilterOptions {
  readonly log: Logger;
  /** Accept workload endpoints with `allowSpoofedSourcePrefixes`. */
  readonly allowSpoofing: boolean;
  /** Limit for the addresses times the ports of one EndpointSlice; by default there is none. */
  readonly maxSliceMembers?: number;
  /** By kind. Resources of other kinds are not checked against a schema. */
  readonly schemas?: ReadonlyMap<string, ResourceSchema>;
  /** Called for every report. */
  readonly onRejected?: () => void;
}

/** Limit of the stored reasons. At the limit all are cleared, and values that are still invalid may be reported again. */
const MAX_REPORTED = 10_000;

export class ValidationFilter {
  readonly #options: ValidationFilterOptions;
  /** The reported reason, by key path. */
  readonly #reported = new Map<string, string>();

  constructor(options: ValidationFilterOptions) {
    this.#options = options;
  }

  /** Returns the update, without its value if that is invalid. */
  check(given: SyncerUpdate): SyncerUpdate {
    const update = given.key.type === "networkSet" ? withOwnLabels(given.key.name, given) : given;
    const fault = update.value === undefined ? undefined : this.#faultOf(update);
    if (fault === undefined) {
      if (this.#reported.size > 0) this.#reported.delete(keyPath(update.key));
      return update;
    }
    this.#report(keyPath(update.key), fault);
    return { ...update, value: undefined } as SyncerUpdate;
  }

  /** Reports an entry that could not be decoded, or only in part. */
  reportUnreadable(path: string, reason: string): void {
    this.#report(path, reason);
  }

  /** Returns a sink that passes valid values to `next`. */
  before(next: SyncerSink): SyncerSink {
    return {
      onStatus: (status) => next.onStatus(status),
      onUpdates: (updates, paths) =>
        next.onUpdates(
          updates.map((update) => this.check(update)),
          paths,
        ),
      onUnreadable: (path, reason) => {
        this.reportUnreadable(path, reason);
        next.onUnreadable?.(path, reason);
      },
    };
  }

  #report(path: string, reason: string): void {
    if (this.#reported.get(path) === reason) return;
    if (this.#reported.size >= MAX_REPORTED) this.#reported.clear();
    this.#reported.set(path, reason);
    this.#options.onRejected?.();
    this.#options.log.warn("invalid datastore entry; the invalid part is ignored", { key: path, reason });
  }

  #faultOf({ key, value }: SyncerUpdate): string | undefined {
    switch (key.type) {
      case "workloadEndpoint":
        return this.#endpointFault(value as WorkloadEndpoint);
      case "resource": {
        const resource = value as Resource;
        if (key.kind === "KubernetesEndpointSlice") return this.#sliceFault(resource);
        return this.#schemaFault(key.kind, resource);
      }
      default:
        return undefined;
    }
  }

  #endpointFault(endpoint: WorkloadEndpoint): string | undefined {
    if (endpoint.name === "") return "the workload endpoint has no interface name";
    if ((endpoint.allowSpoofedSourcePrefixes ?? []).length > 0 && !this.#options.allowSpoofing)
      return "allowSpoofedSourcePrefixes is set, but WorkloadSourceSpoofing does not allow it";
    return undefined;
  }

  #sliceFault(slice: Resource): string | undefined {
    const { maxSliceMembers = Number.POSITIVE_INFINITY } = this.#options;
    const count = countSliceMembers(readEndpointSlice(slice, ignoreUnreadable));
    if (count <= maxSliceMembers) return undefined;
    return `addresses times ports are ${count}; the limit is ${maxSliceMembers}`;
  }

  #schemaFault(kind: string, resource: Resource): string | undefined {
    const result = this.#options.schemas?.get(kind)?.validate(resource, "stored");
    if (result === undefined || result.ok) return undefined;
    return result.faults.map(({ field, reason }) => `${field}: ${reason}`).join("; ");
  }
}

/** Removes labels that claim another namespace: a Typha of Calico, or of an older version, leaves them in place. */
function withOwnLabels(name: string, update: SyncerUpdate): SyncerUpdate {
  const [namespace = "", set] = name.split("/");
  if (set === undefined || update.value === undefined) return update; // global sets are the administrator's
  const value = update.value as NetworkSet;
  return { ...update, value: { ...value, labels: networkSetLabels(value.labels, namespace) } } as SyncerUpdate;
}
