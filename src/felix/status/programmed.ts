// Reports the revision of each local endpoint and active policy that the kernel enforces, which may be older than the
// revision in the datastore.
//
//   syncer: policy at revision 7 ─► graph flushed after message 120 ─► round applied messages up to 120 ─► programmed at 7
//
// The revisions are in metrics and in one file each under `programmed/`, which scripts can wait for. A revision is reported
// when all messages that result from it were applied without an error.
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { DataplaneMessage, PolicyId } from "../../calc/index.ts";
import type { SyncerUpdate } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";
import { replaceFile } from "../../lib/files/replace-file.ts";
import { endpointStatusFileName, type PolicyKey, type WorkloadEndpointKey } from "../../model/index.ts";

export interface ProgrammedOptions {
  readonly host: string;
  /** The parent of the folder, such as /var/run/calico; empty: write no files. */
  readonly prefix: string;
  readonly log: Logger;
  readonly now?: () => Date;
}

type EntryKey = PolicyKey | WorkloadEndpointKey;

interface Entry {
  readonly kind: "endpoint" | "policy";
  readonly key: EntryKey;
  /** File name. */
  readonly file: string;
  /** The latest revision that the calculation received; empty if the object does not exist. */
  revision: string;
  /** The revision in the kernel; undefined before the first time. */
  programmed?: string;
  /** The endpoint is on this host, or the policy is active here. */
  isLocal: boolean;
}

/** Revisions whose messages have been sent to the dataplane. */
interface SentRevisions {
  /** The number of messages that must have been applied. */
  readonly messages: number;
  readonly revisions: ReadonlyMap<Entry, string>;
  readonly sentAtMs: number;
}

/** Number of files written before other tasks on the event loop may run. */
const FILES_PER_SLICE = 20;
const FOLDERS = { endpoint: "endpoints", policy: "policies" } as const;

export class ProgrammedRevisions {
  readonly #options: ProgrammedOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #sent: SentRevisions[] = [];
  readonly #unsent = new Map<Entry, string>();
  #sentMessages = 0;
  #appliedMessages = 0;
  readonly #unwritten = new Set<Entry>();
  #isWriting = false;
  #isFailureLogged = false;
  #observe: (seconds: number) => void = () => {};

  constructor(options: ProgrammedOptions) {
    this.#options = options;
  }

  /** Must be called with the syncer's updates, before the calculation processes them. */
  onUpdates(updates: readonly SyncerUpdate[]): void {
    for (const { key, value, revision } of updates) {
      let entry: Entry | undefined;
      if (key.type === "policy") entry = this.#policy(key);
      else if (key.type === "workloadEndpoint" && key.host === this.#options.host) {
        entry = this.#endpoint(key);
        entry.isLocal = value !== undefined;
      }
      if (entry === undefined) continue;
      if (value === undefined) {
        this.#onDeleted(entry);
        continue;
      }
      if (revision === undefined || revision === "") continue;
      entry.revision = revision;
      this.#unsent.set(entry, revision);
    }
  }

  /** Must be called for each message to the dataplane. */
  onMessage(message: DataplaneMessage): void {
    this.#sentMessages++;
    if (message.type === "activePolicyUpdate") this.#setLocal(this.#policy(message.id), true);
    else if (message.type === "activePolicyRemove") this.#setLocal(this.#policy(message.id), false);
  }

  /**
   * Must be called when all messages that result from the updates so far have been sent.
   * @param isHeld returns true for an object of which this is not true yet
   */
  onFlushed(isHeld: (key: EntryKey) => boolean = () => false): void {
    const revisions = new Map<Entry, string>();
    for (const [entry, revision] of this.#unsent)
      if (!isHeld(entry.key)) {
        this.#unsent.delete(entry);
        revisions.set(entry, revision);
      }
    if (revisions.size === 0) return;
    this.#sent.push({ messages: this.#sentMessages, revisions, sentAtMs: performance.now() });
    this.#settle();
  }

  /** Must be called after each round. `messages` is the number of messages that all rounds so far have applied. */
  onApplied(round: { readonly messages: number; readonly ok: boolean }): void {
    if (!round.ok) return;
    this.#appliedMessages = round.messages;
    this.#settle();
  }

  /** The number of revisions that are not in the kernel yet. */
  get pending(): number {
    return this.#sent.reduce((sum, { revisions }) => sum + revisions.size, this.#unsent.size);
  }

  measure(registry: MetricsRegistry): void {
    const all = (kind: Entry["kind"]) => [...this.#entries.values()].filter((e) => e.kind === kind && isReported(e));
    registry.collect("felix_programmed_revision", "Revision that the kernel enforces.", "gauge", () =>
      (["endpoint", "policy"] as const).flatMap((kind) =>
        all(kind).map((e): [Record<string, string>, number] => [
          { kind, name: decodeURIComponent(e.file) },
          Number(e.programmed ?? Number.NaN),
        ]),
      ),
    );
    registry.collect("felix_programming_pending", "Revisions that are not in the kernel yet.", "gauge", () => [
      [{}, this.pending],
    ]);
    const latency = registry.summary(
      "felix_programming_seconds",
      "Seconds from the calculation of a change until the kernel enforces it.",
    );
    this.#observe = (seconds) => latency.observe(seconds);
  }

  /** Deletes files of an earlier run. Must be called after the dataplane's first round. */
  start(): void {
    const { prefix, log } = this.#options;
    if (prefix === "") return;
    try {
      for (const [kind, folder] of Object.entries(FOLDERS)) {
        const path = join(prefix, "programmed", folder);
        mkdirSync(path, { recursive: true, mode: 0o755 });
        const desired = new Set(
          [...this.#entries.values()].filter((e) => e.kind === kind && isReported(e)).map((e) => e.file),
        );
        for (const name of readdirSync(path)) if (!desired.has(name)) rmSync(join(path, name), { force: true });
      }
    } catch (error) {
      log.warn("could not write programmed revisions to files", { error: describeError(error) });
      this.#isFailureLogged = true;
    }
  }

  #settle(): void {
    for (let next = this.#sent[0]; next !== undefined && next.messages <= this.#appliedMessages; next = this.#sent[0]) {
      this.#sent.shift();
      this.#observe((performance.now() - next.sentAtMs) / 1000);
      for (const [entry, revision] of next.revisions) {
        if (entry.programmed === revision) continue;
        entry.programmed = revision;
        if (entry.isLocal) this.#queueWrite(entry);
      }
    }
    this.#writeSoon();
  }

  #setLocal(entry: Entry, isLocal: boolean): void {
    if (entry.isLocal === isLocal) return;
    entry.isLocal = isLocal;
    // The policy takes effect with a later round, even if its revision is old.
    if (isLocal && entry.revision !== "") {
      delete entry.programmed;
      this.#unsent.set(entry, entry.revision);
    } else this.#queueWrite(entry);
    this.#removeIfUnused(entry);
  }

  #policy({ kind, namespace, name }: PolicyId): Entry {
    const parts = namespace === "" ? [kind, name] : [kind, namespace, name];
    return this.#entry("policy", encodeURIComponent(parts.join("/")), { type: "policy", kind, namespace, name });
  }
  #endpoint(key: WorkloadEndpointKey): Entry {
    return this.#entry("endpoint", endpointStatusFileName(key), key);
  }
  #entry(kind: Entry["kind"], file: string, key: EntryKey): Entry {
    const id = idOf({ kind, file });
    let entry = this.#entries.get(id);
    if (entry === undefined) this.#entries.set(id, (entry = { kind, key, file, revision: "", isLocal: false }));
    return entry;
  }
  /** The object was deleted from the datastore. A policy stays local until the calculation removes it. */
  #onDeleted(entry: Entry): void {
    if (!entry.isLocal) delete entry.programmed;
    entry.revision = "";
    this.#unsent.delete(entry);
    if (!entry.isLocal) this.#queueWrite(entry);
    this.#removeIfUnused(entry);
  }

  /** If the entry has a file, the queued write deletes the file. */
  #removeIfUnused(entry: Entry): void {
    const id = idOf(entry);
    if (!entry.isLocal && entry.revision === "" && this.#entries.get(id) === entry) this.#entries.delete(id);
  }

  #queueWrite(entry: Entry): void {
    if (this.#options.prefix !== "") this.#unwritten.add(entry);
  }

  /** Writes a few files at a time, so that other work is not delayed. */
  #writeSoon(): void {
    if (this.#isWriting || this.#unwritten.size === 0) return;
    this.#isWriting = true;
    setImmediate(() => {
      this.#isWriting = false;
      let left = FILES_PER_SLICE;
      for (const entry of this.#unwritten) {
        if (left-- === 0) break;
        this.#unwritten.delete(entry);
        this.#write(entry);
      }
      this.#writeSoon();
    });
  }

  #write(entry: Entry): void {
    const { prefix, log, now = () => new Date() } = this.#options;
    const path = join(prefix, "programmed", FOLDERS[entry.kind], entry.file);
    try {
      if (!isReported(entry)) return rmSync(path, { force: true });
      replaceFile(path, JSON.stringify({ revision: entry.programmed, programmedAt: now().toISOString() }));
      this.#isFailureLogged = false;
    } catch (error) {
      if (!this.#isFailureLogged)
        log.warn("could not write a programmed revision to its file", { path, error: describeError(error) });
      this.#isFailureLogged = true;
    }
  }
}

const idOf = ({ kind, file }: Pick<Entry, "kind" | "file">): string => `${kind} ${file}`;
const isReported = (entry: Entry): boolean => entry.isLocal && entry.programmed !== undefined;
