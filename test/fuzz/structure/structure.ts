// Declares mutators. A structure-aware mutator keeps most of an input valid; plain changes of bytes would be rejected by the
// first check of a parser and would not test the code after it.
import type { Random } from "../random.ts";

export interface MutationContext {
  readonly random: Random;
  readonly dictionary: readonly string[];
  /** Another input of the same target, to take parts from. */
  readonly other: () => Uint8Array;
}

/** Returns a changed copy of the input. */
export type Structure = (input: Uint8Array, context: MutationContext) => Uint8Array;

/** Larger inputs are truncated. */
export const MOST_INPUT_BYTES = 256 * 1024;
