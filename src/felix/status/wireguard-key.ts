// The host's WireGuard public keys in its Node, where the others read them. Each family goes its own way: one that
// cannot be written does not hold up the other.
import type { DataplaneReport } from "../../calc/index.ts";
import { Conflict, type Datastore, NotFound } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { pause } from "../../lib/retry.ts";
import type { Resource, ResourceKey } from "../../model/index.ts";

const ATTEMPTS = 3;
const RETRY_MS = 2000;
const FIELDS = { 4: "wireguardPublicKey", 6: "wireguardPublicKeyV6" } as const;

export interface WireguardKeyOptions {
  readonly store: Datastore;
  readonly host: string;
  readonly log: Logger;
  /** A key without a Node to put it in. */
  readonly onNoNode: (reason: string) => void;
  readonly retryMs?: number;
  readonly random?: () => number;
}

export class WireguardKeyReporter {
  readonly #options: WireguardKeyOptions;
  readonly #wanted = new Map<4 | 6, string>();
  readonly #working = new Set<4 | 6>();
  #signal: AbortSignal = new AbortController().signal;

  constructor(options: WireguardKeyOptions) {
    this.#options = options;
  }

  start(signal: AbortSignal): void {
    this.#signal = signal;
  }

  onReport(report: DataplaneReport): void {
    if (report.type !== "wireguardStatus") return;
    this.#wanted.set(report.ipVersion, report.publicKey);
    if (!this.#working.has(report.ipVersion)) void this.#work(report.ipVersion);
  }

  async #work(version: 4 | 6): Promise<void> {
    const { log, retryMs = RETRY_MS, random = Math.random } = this.#options;
    this.#working.add(version);
    for (
      let key = this.#wanted.get(version);
      key !== undefined && !this.#signal.aborted;
      key = this.#wanted.get(version)
    ) {
      try {
        await this.#write(version, key);
        if (this.#wanted.get(version) === key) this.#wanted.delete(version);
      } catch (error) {
        log.warn("the WireGuard key cannot be written to the node; trying again", {
          version,
          error: describeError(error),
        });
        await pause(retryMs * (1 + random()), this.#signal);
      }
    }
    this.#working.delete(version);
  }

  async #write(version: 4 | 6, publicKey: string): Promise<void> {
    const { store, host, onNoNode } = this.#options;
    const isThere = await writeWireguardKey({ store, host, version, publicKey, signal: this.#signal });
    if (!isThere && publicKey !== "") onNoNode(`there is no Node ${host} to hold the WireGuard key`);
  }
}

/** Writes the key, empty for none, unless the Node has it. @returns false when there is no such Node */
export async function writeWireguardKey(given: {
  readonly store: Datastore;
  readonly host: string;
  readonly version: 4 | 6;
  readonly publicKey: string;
  readonly signal: AbortSignal;
}): Promise<boolean> {
  const { store, host, version, publicKey, signal } = given;
  const key: ResourceKey = { type: "resource", kind: "Node", name: host };
  for (let attempt = 1; ; attempt++) {
    try {
      const { value, revision } = await store.get(key, { signal });
      const status = (value.status ?? {}) as Record<string, unknown>;
      if ((status[FIELDS[version]] ?? "") === publicKey) return true;
      const changed: Resource = { ...value, status: { ...status, [FIELDS[version]]: publicKey } };
      await store.update({ key, value: changed, revision }, { signal });
      return true;
    } catch (error) {
      if (error instanceof NotFound) return false;
      if (!(error instanceof Conflict) || attempt === ATTEMPTS) throw error;
    }
  }
}
