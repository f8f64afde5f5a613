// How one setting is declared: its type, default, meaning and manners. The table of all settings, the engine, the
// documentation and the types of the values all come from this one declaration.

/** Files and programs, as far as a value may name them; given from outside so that tests decide. */
export interface Surroundings {
  exists(path: string): boolean;
  /** The full path of a program, searched beside our own executable, then on the search path. */
  findExecutable(name: string): string | undefined;
}

export interface ValueType<T> {
  /** As the documentation says it. */
  readonly name: string;
  /** What `none` means. */
  readonly zero: T;
  /** Throws a `BadValue` that says what would have been right. */
  parse(text: string, surroundings: Surroundings): T;
}

export class BadValue extends Error {
  override readonly name = "BadValue";
  /** @param wanted what would have been right, such as "a number of seconds" */
  constructor(
    readonly text: string,
    readonly wanted: string,
  ) {
    super(`${JSON.stringify(text)} is not ${wanted}`);
  }
}

export interface Parameter<T> {
  readonly type: ValueType<T>;
  /** As text; empty = unset. */
  readonly fallback: string;
  readonly meaning: string;
  /** Only from the file and the environment: it says how the datastore is reached. */
  readonly isLocal: boolean;
  /** A bad value stops the agent from starting; others are reported and passed over. */
  readonly isFatal: boolean;
  readonly refusesNone: boolean;
  /** Applied without a restart. */
  readonly isLive: boolean;
}

export const row = <T>(type: ValueType<T>, fallback: string, meaning: string, flags = ""): Parameter<T> => ({
  type,
  fallback,
  meaning,
  isLocal: flags.includes("L"),
  isFatal: flags.includes("D"),
  refusesNone: flags.includes("N"),
  isLive: flags.includes("!"),
});
