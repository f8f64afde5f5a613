// Reports that the datastore has no Node for this host. Felix continues with its last state, but other nodes send no
// traffic to a host without a Node, and nothing else would show the reason.
import type { SyncerUpdate, SyncStatus } from "../../datastore/index.ts";
import type { HealthReport } from "../../lib/http/health.ts";
import type { Logger } from "../../lib/log/log.ts";

export interface OwnNodeOptions {
  readonly host: string;
  readonly log: Logger;
  /** Adds a row to the health pages that changes neither liveness nor readiness. Called once, when it is first needed. */
  readonly health: () => (report: HealthReport) => void;
}

export class OwnNodeReporter {
  readonly #options: OwnNodeOptions;
  #exists = false;
  #isInSync = false;
  #isReported = false;
  #health: ((report: HealthReport) => void) | undefined;

  constructor(options: OwnNodeOptions) {
    this.#options = options;
  }

  onUpdates(updates: readonly SyncerUpdate[]): void {
    for (const { key, value } of updates)
      if (key.type === "resource" && key.kind === "Node" && key.name === this.#options.host)
        this.#exists = value !== undefined;
    this.#report();
  }

  onStatus(status: SyncStatus): void {
    this.#isInSync = status === "in-sync";
    this.#report();
  }

  /** Does nothing before the first sync, because the Node may still arrive. */
  #report(): void {
    if (!this.#isInSync || this.#isReported === !this.#exists) return;
    const { host, log, health } = this.#options;
    this.#isReported = !this.#exists;
    this.#health ??= health();
    if (this.#exists) {
      log.info("the datastore has a Node for this host again", { node: host });
      this.#health({ ready: true });
    } else {
      log.warn(
        "the datastore has no Node for this host: it was deleted, or the datastore was replaced; restart calico-node, which creates it",
        { node: host },
      );
      this.#health({ ready: true, detail: `Node ${host} is not in the datastore` });
    }
  }
}
