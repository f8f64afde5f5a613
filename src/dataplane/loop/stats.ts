// Counts what the dataplane does, for the metrics of Felix.
import type { IptablesStore } from "../../kernel/index.ts";

/** Passes measured values to listeners; it stores none. */
class Measure {
  readonly #listeners: ((value: number) => void)[] = [];
  add(value: number): void {
    for (const listener of this.#listeners) listener(value);
  }
  listen(listener: (value: number) => void): void {
    this.#listeners.push(listener);
  }
}

export interface CallCount {
  calls: number;
  errors: number;
}
const none = (): CallCount => ({ calls: 0, errors: 0 });
const count = (counter: CallCount, ok: boolean): void => {
  counter.calls++;
  if (!ok) counter.errors++;
};

export class DataplaneStats {
  readonly iptablesSave = none();
  readonly iptablesRestore = none();
  readonly ipset = none();
  readonly nft = none();
  readonly nftList = none();
  ipsetLines = 0;
  /** By family and table: `4 filter`. */
  readonly iptablesLines = new Map<string, number>();
  readonly executionMicros = new Measure();
  readonly routeResyncSeconds = new Measure();
  readonly conntrackSeconds = new Measure();
  /** Number of interface messages, and of address messages, that were processed in one batch. */
  readonly interfaceBatch = new Measure();
  readonly addressBatch = new Measure();

  onIptables(version: number, table: string, action: "save" | "restore", ok: boolean, lines: number): void {
    count(action === "save" ? this.iptablesSave : this.iptablesRestore, ok);
    const key = `${version} ${table}`;
    this.iptablesLines.set(key, (this.iptablesLines.get(key) ?? 0) + lines);
  }
  /** Measures the execution times of a tool. */
  timed(store: IptablesStore): IptablesStore {
    const time = async <T>(work: Promise<T>): Promise<T> => {
      const started = performance.now();
      try {
        return await work;
      } finally {
        this.executionMicros.add((performance.now() - started) * 1000);
      }
    };
    const { family, variant } = store;
    return {
      ...{ family, variant },
      save: (table, signal) => time(store.save(table, signal)),
      restore: (text, signal) => time(store.restore(text, signal)),
    };
  }
  onIpset(ok: boolean, lines: number): void {
    count(this.ipset, ok);
    this.ipsetLines += lines;
  }
  onNft(ok: boolean): void {
    count(this.nft, ok);
  }
  onNftList(ok: boolean): void {
    count(this.nftList, ok);
  }
}

/** The number of objects in the kernel, computed when metrics are read. */
export interface DataplaneSizes {
  readonly backend: "iptables" | "nftables";
  readonly tables: readonly {
    readonly version: 4 | 6 | "arp";
    readonly table?: string;
    readonly chains: number;
    readonly rules: number;
  }[];
  readonly sets: readonly { readonly version: 4 | 6; readonly ours: number }[];
  readonly routes: readonly { readonly table: string; readonly routes: number; readonly interfaces: number }[];
}
