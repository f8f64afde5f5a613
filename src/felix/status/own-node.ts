// Reports when the datastore has no Node for this host: the agent goes on with what it has, but no other node sends
// traffic to a host without a Node, and nothing else would show why.
import type { SyncerUpdate, SyncStatus } from "../../datastore/index.ts";
import type { HealthReport } from "../../lib/health.ts";
import type { Logger } from "../../lib/log.ts";

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

  /** Before the datastore is in sync, a missing Node may only not have arrived yet. */
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
