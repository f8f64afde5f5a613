// What a mutator gets and returns. A structure knows the format of an input well enough to change it and keep most of it
// valid: plain changes of bytes are rejected by the first check of a parser and reach nothing behind it.
import type { Random } from "../random.ts";

export interface MutationContext {
  readonly random: Random;
  readonly dictionary: readonly string[];
  /** Another input of the same target, to take parts from. */
  readonly other: () => Uint8Array;
}

/** Returns a changed copy of the input. */
export type Structure = (input: Uint8Array, context: MutationContext) => Uint8Array;

/** Larger inputs are cut. */
export const MOST_INPUT_BYTES = 256 * 1024;
