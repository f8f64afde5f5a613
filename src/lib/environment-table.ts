// Describes environment variables. Each program declares its variables in a table; docs/reference is generated from them, and
// a unit test fails if the source reads a variable that no table has (scripts/reference.test.ts).

interface EnvironmentVariable {
  /** One or more sentences. */
  readonly meaning: string;
  /** Value if the variable is unset; absent: nothing. */
  readonly default?: string;
}

/** By the names of the variables. */
export type EnvironmentTable = Readonly<Record<string, EnvironmentVariable>>;
