// Writes the host's WireGuard public keys to its Node, where other nodes read them. The IP families are independent: if
// the key of one cannot be written, the other one is not delayed.
import type { DataplaneReport } from "../../calc/index.ts";
import { Conflict, type Datastore, NotFound } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { pause } from "../../lib/retry.ts";
import { ignoreUnreadable, readNode, type ResourceKey, withStatusFields } from "../../model/index.ts";

const ATTEMPTS = 3;
const RETRY_MS = 2000;
const FIELDS = { 4: "wireguardPublicKey", 6: "wireguardPublicKeyV6" } as const;

export interface WireguardKeyOptions {
  readonly store: Datastore;
  readonly host: string;
  readonly log: Logger;
  /** The Node that should contain the key does not exist. */
  readonly onNoNode: (reason: string) => void;
  readonly retryMs?: number;
  readonly random?: () => number;
}

export class WireguardKeyReporter {
  readonly #options: WireguardKeyOptions;
  readonly #desired = new Map<4 | 6, string>();
  readonly #busy = new Set<4 | 6>();
  #signal: AbortSignal = new AbortController().signal;

  constructor(options: WireguardKeyOptions) {
    this.#options = options;
  }

  start(signal: AbortSignal): void {
    this.#signal = signal;
  }

  onReport(report: DataplaneReport): void {
    if (report.type !== "wireguardStatus") return;
    this.#desired.set(report.ipVersion, report.publicKey);
    if (!this.#busy.has(report.ipVersion)) void this.#writeUntilDone(report.ipVersion);
  }

  async #writeUntilDone(version: 4 | 6): Promise<void> {
    const { log, retryMs = RETRY_MS, random = Math.random } = this.#options;
    this.#busy.add(version);
    for (
      let key = this.#desired.get(version);
      key !== undefined && !this.#signal.aborted;
      key = this.#desired.get(version)
    ) {
      try {
        await this.#write(version, key);
        if (this.#desired.get(version) === key) this.#desired.delete(version);
      } catch (error) {
        log.warn("could not write the WireGuard key to the Node; retrying", {
          version,
          error: describeError(error),
        });
        await pause(retryMs * (1 + random()), this.#signal);
      }
    }
    this.#busy.delete(version);
  }

  async #write(version: 4 | 6, publicKey: string): Promise<void> {
    const { store, host, onNoNode } = this.#options;
    const exists = await writeWireguardKey({ store, host, version, publicKey, signal: this.#signal });
    if (!exists && publicKey !== "") onNoNode(`Node ${host}, which should contain the WireGuard key, does not exist`);
  }
}

/** Writes the key (empty: none) unless the Node already has it. @returns false if the Node does not exist */
export async function writeWireguardKey(inputs: {
  readonly store: Datastore;
  readonly host: string;
  readonly version: 4 | 6;
  readonly publicKey: string;
  readonly signal: AbortSignal;
}): Promise<boolean> {
  const { store, host, version, publicKey, signal } = inputs;
  const key: ResourceKey = { type: "resource", kind: "Node", name: host };
  for (let attempt = 1; ; attempt++) {
    try {
      const { value, revision } = await store.get(key, { signal });
      if ((readNode(value, ignoreUnreadable).wireguardKeys[version] ?? "") === publicKey) return true;
      const changed = withStatusFields(value, { [FIELDS[version]]: publicKey });
      await store.update({ key, value: changed, revision }, { signal });
      return true;
    } catch (error) {
      if (error instanceof NotFound) return false;
      if (!(error instanceof Conflict) || attempt === ATTEMPTS) throw error;
    }
  }
}
