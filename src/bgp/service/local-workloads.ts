// Workloads of this node that speak BGP: Felix names their BGPPeer in the endpoint's status file. Read again when the
// folder changes, and from time to time, for what the kernel did not tell.
import { type FSWatcher, readdirSync, readFileSync, watch } from "node:fs";
import { join } from "node:path";
import { tryParseNetwork } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { aborted } from "../../lib/retry.ts";
import { isValueError } from "../../model/index.ts";
import type { LocalWorkload } from "../sessions.ts";

const POLL_MS = 30_000;
/** Several files change at once. */
const SETTLE_MS = 100;

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
    let settle: Timer | undefined;
    const look = () => {
      watcher ??= this.#watch(() => {
        clearTimeout(settle);
        settle = setTimeout(() => this.#read(), SETTLE_MS);
      });
      this.#read();
    };
    const poll = setInterval(look, POLL_MS);
    look();
    await aborted(signal);
    clearInterval(poll);
    clearTimeout(settle);
    watcher?.close();
  }

  #watch(onEvent: () => void): FSWatcher | undefined {
    try {
      return watch(this.#folder, onEvent).on("error", () => {});
    } catch {
      return undefined; // not there yet: polled
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

/** A file that cannot be read, or is just being written, names nobody. */
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
