// Counts the hosts, endpoints, policies, profiles and tiers of the cluster. The graph does not call
// `flush` before it is in sync. The counts are emitted only if they changed.

export interface ClusterStats {
  readonly hosts: number;
  readonly workloadEndpoints: number;
  readonly hostEndpoints: number;
  readonly policies: number;
  readonly profiles: number;
  readonly tiers: number;
}

export class StatsCollector {
  /** By host: the number of endpoints, nodes and settings that refer to it. */
  readonly #hosts = new Map<string, number>();
  /** IDs of the nodes and settings counted in `#hosts`. */
  readonly #references = new Set<string>();
  #workloadEndpoints = 0;
  #hostEndpoints = 0;
  #emitted: ClusterStats | undefined;
  readonly #counts: () => { readonly policies: number; readonly profiles: number; readonly tiers: number };
  readonly #emit: (stats: ClusterStats) => void;

  constructor(options: {
    readonly counts: () => { readonly policies: number; readonly profiles: number; readonly tiers: number };
    readonly emit: (stats: ClusterStats) => void;
  }) {
    this.#counts = options.counts;
    this.#emit = options.emit;
  }

  /** @param by +1 if the endpoint was added, -1 if it was removed */
  countEndpoint(type: "workloadEndpoint" | "hostEndpoint", host: string, by: 1 | -1): void {
    if (type === "workloadEndpoint") this.#workloadEndpoints += by;
    else this.#hostEndpoints += by;
    this.#countHost(host, by);
  }

  /** @param id of the node or setting that refers to the host */
  setHostReference(host: string, id: string, exists: boolean): void {
    if (this.#references.has(id) === exists) return;
    if (exists) this.#references.add(id);
    else this.#references.delete(id);
    this.#countHost(host, exists ? 1 : -1);
  }

  flush(): void {
    const stats: ClusterStats = {
      hosts: this.#hosts.size,
      workloadEndpoints: this.#workloadEndpoints,
      hostEndpoints: this.#hostEndpoints,
      ...this.#counts(),
    };
    if (Bun.deepEquals(stats, this.#emitted, true)) return;
    this.#emitted = stats;
    this.#emit(stats);
  }

  #countHost(host: string, by: number): void {
    const count = (this.#hosts.get(host) ?? 0) + by;
    if (count === 0) this.#hosts.delete(host);
    else this.#hosts.set(host, count);
  }
}
