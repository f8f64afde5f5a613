// How large the cluster is. Counts only; says nothing before the first complete picture, and then only what changed.

export interface ClusterStats {
  readonly hosts: number;
  readonly workloadEndpoints: number;
  readonly hostEndpoints: number;
  readonly policies: number;
  readonly profiles: number;
  readonly tiers: number;
}

export class StatsCollector {
  /** How many things each host is known by. */
  readonly #hosts = new Map<string, number>();
  readonly #known = new Set<string>();
  #workloadEndpoints = 0;
  #hostEndpoints = 0;
  #said: ClusterStats | undefined;
  readonly #counts: () => { readonly policies: number; readonly profiles: number; readonly tiers: number };
  readonly #say: (stats: ClusterStats) => void;

  constructor(options: {
    readonly counts: () => { readonly policies: number; readonly profiles: number; readonly tiers: number };
    readonly say: (stats: ClusterStats) => void;
  }) {
    this.#counts = options.counts;
    this.#say = options.say;
  }

  /** An endpoint came (+1) or went (-1). */
  countEndpoint(type: "workloadEndpoint" | "hostEndpoint", host: string, by: 1 | -1): void {
    if (type === "workloadEndpoint") this.#workloadEndpoints += by;
    else this.#hostEndpoints += by;
    this.#countHost(host, by);
  }

  /** Something else that tells of a host: its node or one of its settings. */
  setHostThing(host: string, id: string, isThere: boolean): void {
    if (this.#known.has(id) === isThere) return;
    if (isThere) this.#known.add(id);
    else this.#known.delete(id);
    this.#countHost(host, isThere ? 1 : -1);
  }

  flush(): void {
    const stats: ClusterStats = {
      hosts: this.#hosts.size,
      workloadEndpoints: this.#workloadEndpoints,
      hostEndpoints: this.#hostEndpoints,
      ...this.#counts(),
    };
    if (Bun.deepEquals(stats, this.#said, true)) return;
    this.#said = stats;
    this.#say(stats);
  }

  #countHost(host: string, by: number): void {
    const count = (this.#hosts.get(host) ?? 0) + by;
    if (count === 0) this.#hosts.delete(host);
    else this.#hosts.set(host, count);
  }
}
