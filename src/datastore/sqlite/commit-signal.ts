// How the processes that share one file learn of each other's commits: whoever commits writes one byte to a file
// beside the database, and inotify wakes the others. Nothing runs while nothing changes, except a slow look at
// SQLite's own commit counter, for the writer that was killed between its commit and its byte.
import type { Database } from "bun:sqlite";
import { closeSync, constants, type FSWatcher, openSync, watch, writeSync } from "node:fs";

/** Slow when notifications come, quick when this file system does not deliver any. */
const LOOK_EVERY_MS = 500;
const LOOK_WITHOUT_NOTIFY_MS = 20;
const TRAILING_LOOK_MS = 12;
/** A look may come just before the notification; so many in a row are no coincidence. */
const MISSES_TOLERATED = 3;
const READ_WRITE = constants.O_RDWR | constants.O_CREAT;

export class CommitSignal {
  readonly #listeners = new Set<() => void>();
  readonly #db: Database;
  readonly #file: string | undefined;
  readonly #onLook: () => void;
  #fd: number | undefined;
  #watcher: FSWatcher | undefined;
  #timer: Timer | undefined;
  #intervalMs = LOOK_EVERY_MS;
  #commits = 0;
  #notified = false;
  #misses = 0;
  #trailing: Timer | undefined;

  /** @param file undefined for a database in memory, which nobody else can change */
  constructor(options: { readonly db: Database; readonly file: string | undefined; readonly onLook: () => void }) {
    this.#db = options.db;
    this.#file = options.file;
    this.#onLook = options.onLook;
  }

  /** After our own commit. */
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
    this.#listen();
    this.#timer = setInterval(() => this.#look(), this.#intervalMs);
  }

  #stop(): void {
    clearInterval(this.#timer);
    clearTimeout(this.#trailing);
    this.#trailing = undefined;
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  #listen(): void {
    if (this.#file === undefined || this.#watcher !== undefined) return;
    try {
      this.#fd ??= openSync(this.#file, READ_WRITE, 0o600);
      this.#watcher = watch(this.#file, () => this.#onNotify());
      this.#watcher.on("error", () => {
        this.#watcher?.close();
        this.#watcher = undefined;
      });
    } catch {
      this.#watcher = undefined; // no inotify left or a file system without it: looking often does
    }
  }

  /** The runtime swallows notifications that come shortly after another: look again until it is quiet. */
  #onNotify(): void {
    this.#notified = true;
    this.#commits = this.#commitCount();
    this.#wake();
    this.#trailing ??= setTimeout(() => {
      this.#trailing = undefined;
      if (this.#commitCount() !== this.#commits) this.#onNotify();
    }, TRAILING_LOOK_MS);
  }

  /** Wakes when others committed without our hearing of it, and looks as often as that makes needed. */
  #look(): void {
    this.#onLook();
    const commits = this.#commitCount();
    const missed = commits !== this.#commits && !this.#notified;
    if (commits !== this.#commits) this.#wake();
    this.#commits = commits;
    this.#misses = missed ? this.#misses + 1 : this.#notified ? 0 : this.#misses;
    this.#notified = false;
    const deaf = this.#file !== undefined && (this.#watcher === undefined || this.#misses >= MISSES_TOLERATED);
    const wanted = deaf ? LOOK_WITHOUT_NOTIFY_MS : LOOK_EVERY_MS;
    if (wanted === this.#intervalMs) return;
    clearInterval(this.#timer);
    this.#intervalMs = wanted;
    this.#timer = setInterval(() => this.#look(), wanted);
  }

  #wake(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Changes when another connection commits. */
  #commitCount(): number {
    return this.#db.query<{ data_version: number }, []>("PRAGMA data_version").get()?.data_version ?? 0;
  }
}
