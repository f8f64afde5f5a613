// Notifies the processes that share a database file of each other's commits: a process that commits writes one byte to a
// file next to the database, and inotify wakes the others. They also poll SQLite's commit counter slowly, because a writer
// may be killed between its commit and the byte.
import type { Database } from "bun:sqlite";
import { closeSync, constants, type FSWatcher, openSync, watch, writeSync } from "node:fs";

const POLL_INTERVAL_MS = 500;
/** Interval if the file system delivers no notifications. */
const POLL_WITHOUT_INOTIFY_MS = 20;
/** Delay of the check for commits whose notification the runtime has dropped. */
const QUIET_MS = 12;
/** A poll may find a commit before its notification arrives. After this many in a row, notifications count as broken. */
const MAX_MISSES = 3;
const READ_WRITE = constants.O_RDWR | constants.O_CREAT;

export class CommitSignal {
  readonly #listeners = new Set<() => void>();
  readonly #db: Database;
  readonly #file: string | undefined;
  readonly #onPoll: () => void;
  #fd: number | undefined;
  #watcher: FSWatcher | undefined;
  #timer: Timer | undefined;
  #intervalMs = POLL_INTERVAL_MS;
  #commits = 0;
  #notified = false;
  #misses = 0;
  #quietTimer: Timer | undefined;

  /** @param file undefined for a database in memory, which no other process can change */
  constructor(options: { readonly db: Database; readonly file: string | undefined; readonly onPoll: () => void }) {
    this.#db = options.db;
    this.#file = options.file;
    this.#onPoll = options.onPoll;
  }

  /** To be called after a commit of this process. */
  announce(): void {
    if (this.#file !== undefined) {
      this.#fd ??= openSync(this.#file, READ_WRITE, 0o600);
      writeSync(this.#fd, "!", 0);
    }
    this.#wake();
  }

  subscribe(listener: () => void): () => void {
    if (this.#listeners.size === 0) this.#start();
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#stop();
    };
  }

  close(): void {
    this.#stop();
    this.#listeners.clear();
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #start(): void {
    this.#commits = this.#commitCount();
    this.#watchFile();
    this.#timer = setInterval(() => this.#poll(), this.#intervalMs);
  }

  #stop(): void {
    clearInterval(this.#timer);
    clearTimeout(this.#quietTimer);
    this.#quietTimer = undefined;
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  #watchFile(): void {
    if (this.#file === undefined || this.#watcher !== undefined) return;
    try {
      this.#fd ??= openSync(this.#file, READ_WRITE, 0o600);
      this.#watcher = watch(this.#file, () => this.#onNotify());
      this.#watcher.on("error", () => {
        this.#watcher?.close();
        this.#watcher = undefined;
      });
    } catch {
      this.#watcher = undefined; // inotify limit reached, or a file system without inotify: poll often instead
    }
  }

  /** The runtime drops notifications that come shortly after another: check again until there are no new commits. */
  #onNotify(): void {
    this.#notified = true;
    this.#commits = this.#commitCount();
    this.#wake();
    this.#quietTimer ??= setTimeout(() => {
      this.#quietTimer = undefined;
      if (this.#commitCount() !== this.#commits) this.#onNotify();
    }, QUIET_MS);
  }

  /** Wakes the listeners after commits that caused no notification, and adapts the interval. */
  #poll(): void {
    this.#onPoll();
    const commits = this.#commitCount();
    const missed = commits !== this.#commits && !this.#notified;
    if (commits !== this.#commits) this.#wake();
    this.#commits = commits;
    this.#misses = missed ? this.#misses + 1 : this.#notified ? 0 : this.#misses;
    this.#notified = false;
    const needsPolling = this.#file !== undefined && (this.#watcher === undefined || this.#misses >= MAX_MISSES);
    const intervalMs = needsPolling ? POLL_WITHOUT_INOTIFY_MS : POLL_INTERVAL_MS;
    if (intervalMs === this.#intervalMs) return;
    clearInterval(this.#timer);
    this.#intervalMs = intervalMs;
    this.#timer = setInterval(() => this.#poll(), intervalMs);
  }

  #wake(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Changes when another connection commits. */
  #commitCount(): number {
    return this.#db.query<{ data_version: number }, []>("PRAGMA data_version").get()?.data_version ?? 0;
  }
}
