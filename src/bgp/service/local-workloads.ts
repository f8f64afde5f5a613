// Finds the workloads of this node that have BGP sessions: Felix writes their BGPPeer to the endpoint status files. The files
// are read again when the folder changes, and periodically, in case inotify missed a change.
import { type FSWatcher, readdirSync, readFileSync, watch } from "node:fs";
import { join } from "node:path";
import { tryParseNetwork } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { aborted } from "../../lib/retry.ts";
import { isValueError } from "../../model/index.ts";
import type { LocalWorkload } from "../sessions.ts";

const POLL_MS = 30_000;
/** Combines several changes into one read. */
const READ_DELAY_MS = 100;

export class LocalWorkloads {
  readonly #folder: string;
  readonly #onChange: () => void;
  #current: readonly LocalWorkload[] = [];
  #text = "";

  constructor(folder: string, onChange: () => void) {
    this.#folder = folder;
    this.#onChange = onChange;
    this.#read();
  }

  get current(): readonly LocalWorkload[] {
    return this.#current;
  }

  async run(signal: AbortSignal): Promise<void> {
    let watcher: FSWatcher | undefined;
    let readTimer: Timer | undefined;
    const watchAndRead = () => {
      watcher ??= this.#watch(() => {
        clearTimeout(readTimer);
        readTimer = setTimeout(() => this.#read(), READ_DELAY_MS);
      });
      this.#read();
    };
    const poll = setInterval(watchAndRead, POLL_MS);
    watchAndRead();
    await aborted(signal);
    clearInterval(poll);
    clearTimeout(readTimer);
    watcher?.close();
  }

  #watch(onEvent: () => void): FSWatcher | undefined {
    try {
      return watch(this.#folder, onEvent).on("error", () => {});
    } catch {
      return undefined; // does not exist yet; polled
    }
  }

  #read(): void {
    const found = readFolder(this.#folder);
    const text = JSON.stringify(found);
    if (text === this.#text) return;
    this.#text = text;
    this.#current = found;
    this.#onChange();
  }
}

/** Ignores files that cannot be read or parsed; they may be incomplete. */
function readFolder(folder: string): readonly LocalWorkload[] {
  let names: readonly string[];
  try {
    names = readdirSync(folder).sort();
  } catch {
    return [];
  }
  return names.flatMap((name) => {
    try {
      return workloadOf(JSON.parse(readFileSync(join(folder, name), "utf8")));
    } catch (error) {
      if (isValueError(error) || error instanceof SyntaxError || "code" in (error as object)) return [];
      throw error;
    }
  });
}

function workloadOf(json: unknown): readonly LocalWorkload[] {
  const status = new JsonReader(json);
  const peerName = status.filled("bgpPeerName");
  if (peerName === undefined) return [];
  const first = ([4, 6] as const).flatMap(
    (family) => tryParseNetwork(status.texts(`ipv${family}Nets`)[0] ?? "")?.address ?? [],
  );
  return [{ peerName, addresses: first }];
}
