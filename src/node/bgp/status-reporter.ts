// Updates the CalicoNodeStatus resources of this node, once or periodically. An unchanged status is not written.
import { Client, Conflict, type Datastore, type Environment, NotFound } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { readBirdFacts, type Facts, type NodeStatus, type NodeStatusResource, statusOf } from "./bird-report.ts";
import { openNodeSyncer } from "../node-syncer.ts";

export interface StatusReporterOptions {
  readonly env: Environment;
  readonly store: Datastore;
  readonly node: string;
  readonly log: Logger;
  readonly readFacts?: () => Promise<Facts>;
  readonly now?: () => Date;
}

const WRITE_ATTEMPTS = 3;

export async function reportStatus(options: StatusReporterOptions, signal: AbortSignal): Promise<void> {
  const reporters = new Map<string, Reporter>();
  const syncer = await openNodeSyncer("node-status", options);
  await syncer.run(
    {
      onStatus: () => {},
      onUpdates: (updates) => {
        for (const { key, value } of updates) {
          if (key.type !== "resource" || key.kind !== "CalicoNodeStatus") continue;
          const resource = value as NodeStatusResource | undefined;
          const isThisNode = resource?.spec.node === options.node;
          const known = reporters.get(key.name);
          if (!isThisNode) {
            known?.stop();
            reporters.delete(key.name);
          } else if (known === undefined) reporters.set(key.name, new Reporter(key.name, resource, options));
          else known.update(resource);
        }
      },
    },
    signal,
  );
  for (const reporter of reporters.values()) reporter.stop();
}

/** Updates the status of one resource. */
class Reporter {
  #spec = "";
  #timer: ReturnType<typeof setInterval> | undefined;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(
    readonly name: string,
    resource: NodeStatusResource,
    readonly options: StatusReporterOptions,
  ) {
    this.update(resource);
  }

  /** Reports again only if the spec changed: the reporter's own status writes arrive here too. */
  update({ spec }: NodeStatusResource): void {
    const text = JSON.stringify(spec);
    if (text === this.#spec) return;
    this.#spec = text;
    clearInterval(this.#timer);
    this.#report();
    const seconds = spec.updatePeriodSeconds ?? 0;
    if (seconds > 0) this.#timer = setInterval(() => this.#report(), seconds * 1000);
  }

  stop(): void {
    this.#stopped = true;
    clearInterval(this.#timer);
  }

  /** Chained, so that no two writes run at the same time. */
  #report(): void {
    this.#running = this.#running
      .then(() => this.#write())
      .catch((error: unknown) => {
        this.options.log.warn("could not write a CalicoNodeStatus", { name: this.name, error: describeError(error) });
      });
  }

  async #write(): Promise<void> {
    const { store, log } = this.options;
    const client = new Client(store, { log });
    const facts = await (this.options.readFacts ?? readFacts)();
    for (let attempt = 1; !this.#stopped; attempt++)
      try {
        const resource = await client.get({ kind: "CalicoNodeStatus", name: this.name });
        const status = statusOf(resource.spec.classes ?? [], facts, (this.options.now ?? (() => new Date()))());
        if (isSame(resource.status, status)) return;
        await client.updateStatus({ ...resource, status });
        return;
      } catch (error) {
        if (error instanceof NotFound) return;
        if (!(error instanceof Conflict) || attempt >= WRITE_ATTEMPTS) throw error;
      }
  }
}

const readFacts = async (): Promise<Facts> => ({ 4: await readBirdFacts(4), 6: await readBirdFacts(6) });

/** Compares everything except the time. */
function isSame(before: NodeStatus | undefined, after: NodeStatus): boolean {
  if (before?.lastUpdated === undefined || before.lastUpdated === null) return false;
  const { lastUpdated: _, ...old } = before;
  const { lastUpdated: __, ...now } = after;
  return Bun.deepEquals(old, now); // deepEquals treats missing and undefined fields as equal
}
