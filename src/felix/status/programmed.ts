// Which revision of each local endpoint and active policy the kernel enforces: not what was asked for, what is there.
//
//   syncer: policy at revision 7 ─► graph flushed after message 120 ─► round applied messages up to 120 ─► programmed at 7
//
// A file each under `programmed/`, for scripts and people who wait, and the same in metrics. A revision counts when
// everything that followed from it was written without a failure.
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { DataplaneMessage, PolicyId, WorkloadEndpointId } from "../../calc/index.ts";
import type { SyncerUpdate } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";
import { replaceFile } from "../../lib/whole-file.ts";
import { endpointStatusFileName } from "../../model/index.ts";

export interface ProgrammedOptions {
  readonly host: string;
  /** The parent of the folder, such as /var/run/calico; nothing is written without. */
  readonly prefix: string;
  readonly log: Logger;
  readonly now?: () => Date;
}

interface Entry {
  readonly kind: "endpoint" | "policy";
  /** What the file is called. */
  readonly file: string;
  /** As the calculation last heard of it. */
  revision: string;
  /** As the kernel has it; nothing before the first time. */
  programmed?: string;
  /** Whether it matters on this host. */
  isLocal: boolean;
}

interface Awaited {
  /** Messages that must have been applied. */
  readonly messages: number;
  readonly revisions: ReadonlyMap<Entry, string>;
  readonly since: number;
}

const FILES_PER_TURN = 20;
const FOLDERS = { endpoint: "endpoints", policy: "policies" } as const;

export class ProgrammedRevisions {
  readonly #options: ProgrammedOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #awaited: Awaited[] = [];
  #heard = new Map<Entry, string>();
  #messages = 0;
  #applied = 0;
  readonly #unwritten = new Set<Entry>();
  #isWriting = false;
  #hasFailed = false;
  #observe: (seconds: number) => void = () => {};

  constructor(options: ProgrammedOptions) {
    this.#options = options;
  }

  /** From the syncer, before the calculation sees them. */
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
        this.#forget(entry);
        continue;
      }
      if (revision === undefined || revision === "") continue;
      entry.revision = revision;
      this.#heard.set(entry, revision);
    }
  }

  /** What the calculation tells the dataplane. */
  onMessage(message: DataplaneMessage): void {
    this.#messages++;
    if (message.type === "activePolicyUpdate") this.#setLocal(this.#policy(message.id), true);
    else if (message.type === "activePolicyRemove") this.#setLocal(this.#policy(message.id), false);
  }

  /** The calculation has said all that follows from what it heard. */
  onFlushed(): void {
    if (this.#heard.size === 0) return;
    this.#awaited.push({ messages: this.#messages, revisions: this.#heard, since: performance.now() });
    this.#heard = new Map();
    this.#settle();
  }

  /** A round was written. @param messages how many messages it and all before it took */
  onApplied(round: { readonly messages: number; readonly ok: boolean }): void {
    if (!round.ok) return;
    this.#applied = round.messages;
    this.#settle();
  }

  /** How many revisions wait for the kernel. */
  get pending(): number {
    return this.#awaited.reduce((sum, { revisions }) => sum + revisions.size, this.#heard.size);
  }

  measure(registry: MetricsRegistry): void {
    const all = (kind: Entry["kind"]) => [...this.#entries.values()].filter((e) => e.kind === kind && isShown(e));
    registry.collect("felix_programmed_revision", "Revision the kernel enforces.", "gauge", () =>
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
    const latency = registry.summary("felix_programming_seconds", "Seconds from a change's calculation to the kernel.");
    this.#observe = (seconds) => latency.observe(seconds);
  }

  /** Files of an earlier run go; what is known comes. Called when the dataplane has its first round done. */
  start(): void {
    const { prefix, log } = this.#options;
    if (prefix === "") return;
    try {
      for (const [kind, folder] of Object.entries(FOLDERS)) {
        const path = join(prefix, "programmed", folder);
        mkdirSync(path, { recursive: true, mode: 0o755 });
        const wanted = new Set(
          [...this.#entries.values()].filter((e) => e.kind === kind && isShown(e)).map((e) => e.file),
        );
        for (const name of readdirSync(path)) if (!wanted.has(name)) rmSync(join(path, name), { force: true });
      }
    } catch (error) {
      log.warn("programmed revisions cannot be written to files", { error: describeError(error) });
      this.#hasFailed = true;
    }
  }

  #settle(): void {
    for (let next = this.#awaited[0]; next !== undefined && next.messages <= this.#applied; next = this.#awaited[0]) {
      this.#awaited.shift();
      this.#observe((performance.now() - next.since) / 1000);
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
    // It takes effect with a round to come: then it counts, whatever its age.
    if (isLocal && entry.revision !== "") {
      delete entry.programmed;
      this.#heard.set(entry, entry.revision);
    } else this.#queueWrite(entry);
    this.#dropIfGone(entry);
  }

  #policy({ kind, namespace, name }: PolicyId): Entry {
    const parts = namespace === "" ? [kind, name] : [kind, namespace, name];
    return this.#entry("policy", encodeURIComponent(parts.join("/")));
  }
  #endpoint(id: WorkloadEndpointId): Entry {
    return this.#entry("endpoint", endpointStatusFileName(id));
  }
  #entry(kind: Entry["kind"], file: string): Entry {
    const key = keyOf({ kind, file });
    let entry = this.#entries.get(key);
    if (entry === undefined) this.#entries.set(key, (entry = { kind, file, revision: "", isLocal: false }));
    return entry;
  }
  /** The datastore no longer has it. A policy stays until the calculation removes it from the dataplane. */
  #forget(entry: Entry): void {
    if (!entry.isLocal) delete entry.programmed;
    entry.revision = "";
    this.#heard.delete(entry);
    if (!entry.isLocal) this.#queueWrite(entry);
    this.#dropIfGone(entry);
  }

  /** Its file, if there is one, is removed by the write that is already queued. */
  #dropIfGone(entry: Entry): void {
    const key = keyOf(entry);
    if (!entry.isLocal && entry.revision === "" && this.#entries.get(key) === entry) this.#entries.delete(key);
  }

  #queueWrite(entry: Entry): void {
    if (this.#options.prefix !== "") this.#unwritten.add(entry);
  }

  /** A few at a time: nobody's packet waits for a file. */
  #writeSoon(): void {
    if (this.#isWriting || this.#unwritten.size === 0) return;
    this.#isWriting = true;
    setImmediate(() => {
      this.#isWriting = false;
      let left = FILES_PER_TURN;
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
      if (!isShown(entry)) return rmSync(path, { force: true });
      replaceFile(path, JSON.stringify({ revision: entry.programmed, programmedAt: now().toISOString() }));
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed)
        log.warn("a programmed revision cannot be written to its file", { path, error: describeError(error) });
      this.#hasFailed = true;
    }
  }
}

const keyOf = ({ kind, file }: Pick<Entry, "kind" | "file">): string => `${kind} ${file}`;
const isShown = (entry: Entry): boolean => entry.isLocal && entry.programmed !== undefined;
