// Defines a fuzz target: a parser of untrusted bytes, and the invariants of its result for every input.
import type { Structure } from "./structure/structure.ts";

export interface FuzzTarget {
  /** The format of the bytes, and their sender. */
  readonly about: string;
  /** How inputs are mutated. */
  readonly structure: Structure;
  /** Words that are inserted into inputs. */
  readonly dictionary?: readonly string[];
  /** The errors by which the parser rejects an input. Any other error is a finding. */
  readonly rejections: readonly ErrorClass[];
  /**
   * Parses the input and checks the invariants of accepted input.
   * @returns whether the input was accepted
   * @throws Violation, one of `rejections`, or whatever a faulty parser throws
   */
  readonly run: (input: Uint8Array) => boolean | Promise<boolean>;
}

// biome-ignore lint: constructors of errors have different parameters
export type ErrorClass = abstract new (...parameters: never[]) => Error;

/** The parser accepted an input, and an invariant does not hold. */
export class Violation extends Error {
  override readonly name = "Violation";
}

export function require(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Violation(what);
}

/** Fails unless both values are deeply equal, as after a round trip through text. */
export function requireEqual(actual: unknown, expected: unknown, what: string): void {
  if (Bun.deepEquals(actual, expected)) return;
  throw new Violation(`${what}: ${shown(actual)} instead of ${shown(expected)}`);
}

const shown = (value: unknown): string => Bun.inspect(value, { depth: 6 }).slice(0, 300);

export const textOf = (input: Uint8Array): string => new TextDecoder().decode(input);
