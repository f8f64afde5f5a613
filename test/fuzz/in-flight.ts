// Stores the current input of a fuzzing process in a file that parent and child map. The file survives a crash of the child,
// and the parent reads it to find inputs that take too long.
import { readFileSync, writeFileSync } from "node:fs";
import { MOST_INPUT_BYTES } from "./structure/structure.ts";

const HEADER = 16;

export interface InFlight {
  readonly executions: number;
  readonly accepted: number;
  /** Undefined between two inputs. */
  readonly input: Uint8Array | undefined;
}

export class InFlightWriter {
  readonly #bytes: Uint8Array<ArrayBuffer>;
  readonly #view: DataView;

  constructor(file: string) {
    this.#bytes = Bun.mmap(file) as Uint8Array<ArrayBuffer>;
    this.#view = new DataView(this.#bytes.buffer, this.#bytes.byteOffset, this.#bytes.byteLength);
  }

  begin(input: Uint8Array): void {
    this.#bytes.set(input.subarray(0, MOST_INPUT_BYTES), HEADER);
    this.#view.setUint32(8, Math.min(input.length, MOST_INPUT_BYTES), true);
    this.#view.setUint32(12, 1, true);
  }

  end(executions: number, accepted: number): void {
    this.#view.setUint32(12, 0, true);
    this.#view.setUint32(0, executions, true);
    this.#view.setUint32(4, accepted, true);
  }
}

export function createInFlightFile(file: string): void {
  writeFileSync(file, new Uint8Array(HEADER + MOST_INPUT_BYTES));
}

export function readInFlight(file: string): InFlight {
  const bytes = readFileSync(file);
  const length = bytes.readUInt32LE(8);
  const input = bytes.readUInt32LE(12) === 0 ? undefined : new Uint8Array(bytes.subarray(HEADER, HEADER + length));
  return { executions: bytes.readUInt32LE(0), accepted: bytes.readUInt32LE(4), input };
}
