// Prints each dataplane message as one line of JSON, for `calico-felix --dump`.
import type { DataplaneMessage } from "../../calc/index.ts";
import { aborted } from "../../lib/retry.ts";
import type { RunningDriver } from "./driver.ts";

export class DumpDriver implements RunningDriver {
  readonly #write: (line: string) => void;

  constructor(write: (line: string) => void) {
    this.#write = write;
  }
  send(message: DataplaneMessage): void {
    this.#write(`${JSON.stringify(message)}\n`);
  }
  ready(): Promise<void> {
    return Promise.resolve();
  }
  run(signal: AbortSignal): Promise<void> {
    return aborted(signal);
  }
}
