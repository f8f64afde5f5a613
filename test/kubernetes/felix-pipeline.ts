// Runs Felix without a dataplane: the syncer and the calculation graph, and records the messages for an external driver.
import { CalculationGraph, type DataplaneMessage, encodeToDataplane } from "../../src/calc/index.ts";
import { policySettings } from "../../src/calc/testing/settings.ts";
import { createSyncer, type Datastore } from "../../src/datastore/index.ts";
import { bytesOf, type RawField, rawFields } from "../../src/lib/testing/proto-fields.ts";

export class FelixPipeline implements AsyncDisposable {
  /** Since the last `take`. */
  #messages: DataplaneMessage[] = [];
  #isInSync = false;
  readonly #aborter = new AbortController();
  readonly #running: Promise<void>;

  constructor(store: Datastore, host: string) {
    const graph = new CalculationGraph(policySettings(host), { onMessage: (message) => this.#messages.push(message) });
    this.#running = createSyncer("felix", store).run(
      {
        onStatus: (status) => {
          if (status !== "in-sync" || this.#isInSync) return;
          this.#isInSync = true;
          graph.setInSync();
          graph.flush();
        },
        onUpdates: (updates) => {
          for (const update of updates) graph.update(update as Parameters<typeof graph.update>[0]);
          if (this.#isInSync) graph.flush();
        },
      },
      this.#aborter.signal,
    );
  }

  get isInSync(): boolean {
    return this.#isInSync;
  }

  /** Returns the messages so far as text, sorted; `take` also clears them. */
  formatted(): string[] {
    return this.#messages.map((message) => show(encodeToDataplane(message, 0))).sort();
  }
  take(): string[] {
    const formatted = this.formatted();
    this.#messages = [];
    return formatted;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#aborter.abort();
    await this.#running;
  }
}

/** Formats a recorded message in the same way. */
export const showRecorded = (tag: number, raw: string): string =>
  `${tag}:${showFields(Buffer.from(raw, "base64"), isSet(tag))}`;

const isSet = (tag: number): boolean => [2, 3, 19, 21].includes(tag);

function show(envelope: Uint8Array): string {
  const [payload] = rawFields(envelope);
  if (payload === undefined) return "";
  return `${payload.number}:${showFields(bytesOf(payload), isSet(payload.number))}`;
}

/** Formats fields by number, and the members of a set in sorted order. */
function showFields(bytes: Uint8Array, isUnordered: boolean): string {
  const parts: string[] = [];
  for (const field of rawFields(bytes)) {
    const value = showValue(field, isUnordered);
    if (value !== '""') parts.push(`${field.number}=${value}`); // absent and empty are equivalent
  }
  return `{${(isUnordered ? parts.sort() : parts).join(" ")}}`;
}

function showValue({ value: bytes }: RawField, isUnordered: boolean): string {
  if (typeof bytes === "number") return String(bytes);
  const text = bytes.toString("latin1");
  if (/^[\x20-\x7e]*$/.test(text)) return JSON.stringify(text);
  try {
    return showFields(bytes, isUnordered);
  } catch {
    return bytes.toString("hex");
  }
}
