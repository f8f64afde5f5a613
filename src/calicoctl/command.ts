// What a command is to the program that dispatches it: its place in the grammar, its flags, and a function that is
// loaded only when this command was asked for. Everything a command touches of the outside comes in with the call.

/** An option as the user types it. With `value` it takes one, named so in the help. */
export interface Flag {
  readonly name: string;
  readonly short?: string;
  readonly value?: string;
  readonly about: string;
  /** May be given more than once. */
  readonly repeatable?: boolean;
  /** Accepted, but not shown: an old spelling. */
  readonly hidden?: boolean;
  /** This flag is another spelling of that one. */
  readonly means?: string;
}

export interface Command {
  readonly name: string;
  readonly about: string;
  /** Grammar after the program's and the command's name, one line per form. */
  readonly usage: readonly string[];
  readonly flags: readonly Flag[];
  /** How many words may stand beside the flags. */
  readonly words: { readonly least: number; readonly most: number };
  /** More to say than one line, shown by --help only. */
  readonly details?: string;
  readonly load: () => Promise<{ run: Run }>;
}

/** A word that only opens the way to others: `ipam`, `datastore migrate`. */
export interface Group {
  readonly name: string;
  readonly about: string;
  readonly commands: readonly (Command | Group)[];
}

export type Run = (call: Call) => Promise<number> | number;

/** One call of a command: what was typed, and the world it runs in. */
export interface Call {
  /** `calicoctl`, or `kubectl-calico` when kubectl started us. */
  readonly program: string;
  readonly words: readonly string[];
  readonly flags: Flags;
  readonly world: World;
}

export interface Flags {
  has(name: string): boolean;
  /** The value, or nothing when the flag was not given. */
  value(name: string): string | undefined;
  values(name: string): readonly string[];
}

/** The outside as a command sees it; tests hand in their own. */
export interface World {
  readonly env: Readonly<Record<string, string | undefined>>;
  out(text: string): void;
  err(text: string): void;
  readStdin(): Uint8Array;
  /** One line that somebody types; without it the first line of standard input counts. */
  readLine?(): string;
  /** Whether standard output (or error) is a terminal: colour and progress only then. */
  isTerminal(stream: "out" | "err"): boolean;
  /** How long a datastore may take to answer; 10 s unless told. */
  readonly timeoutMs?: number;
}

export const isGroup = (entry: Command | Group): entry is Group => "commands" in entry;
