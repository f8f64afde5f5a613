// Declares command lines as data: commands, sub-commands, flags, arguments and examples. Parser, help texts and whatever
// else needs to know the grammar read these tables; the code of a command is loaded only when the command runs.
//
//   const pingGrammar = {
//     flags: { count: { type: "number", value: "N", min: 1, max: 100, default: 3, about: "number of packets" } },
//     arguments: [{ name: "HOST", about: "name or address" }],
//   } as const satisfies Grammar;
//   const command = commandsWith({});
//   const ping = command({ name: "ping", about: "Send packets.", ...pingGrammar, load: () => import("./ping.ts") });
//
// ping.ts exports `run(call: Call<typeof pingGrammar>)`, in which `call.flags.count` is a number and `call.args.HOST` a
// string. The grammar is a constant of its own, because the type of `run` must not depend on the type of `ping`.
import type { CommandIo } from "./io.ts";

interface AnyFlag {
  /** What the flag does, for help texts; begins with a small letter and has no full stop. */
  readonly about: string;
  readonly short?: string;
  /** A second letter that is accepted but not shown. */
  readonly hiddenShort?: string;
  /** Accepted, but not shown. */
  readonly isHidden?: true;
  /** Heading in the help text; `Options` if absent. */
  readonly section?: string;
}

/** A flag without a value. */
export interface SwitchFlag extends AnyFlag {
  readonly type: "switch";
}

interface ValueFlag extends AnyFlag {
  /** Stands for the value in help texts: `FILE`. */
  readonly value: string;
  /** The default as help texts show it, if the command determines it. */
  readonly defaultText?: string;
  readonly isRequired?: true;
}

export interface TextFlag extends ValueFlag {
  readonly type: "text";
  readonly default?: string;
  /** The only values the flag may have. */
  readonly values?: readonly string[];
  /** The command itself reports values that are not in `values`. */
  readonly isCheckedByCommand?: true;
  /** Throws if the value is not valid. */
  readonly check?: (value: string) => void;
  /** The flag may be given several times. */
  readonly isRepeatable?: true;
}

export interface NumberFlag extends ValueFlag {
  readonly type: "number";
  readonly default?: number;
  readonly min: number;
  readonly max: number;
}

export type Flag = SwitchFlag | TextFlag | NumberFlag;

/** Flags by their names without dashes. */
export type FlagTable = Readonly<Record<string, Flag>>;

export interface Argument {
  readonly name: string;
  readonly about: string;
  readonly isOptional?: true;
  /** The last argument may be given several times. */
  readonly isRepeatable?: true;
  /** The command itself reports that a required argument is missing. */
  readonly isCheckedByCommand?: true;
  /** The argument may begin with a dash, as long as it is not one of the command's flags. */
  readonly mayBeginWithDash?: true;
}

/** Words that are not parsed: the command line of another program. */
export interface Rest {
  readonly name: string;
  readonly about: string;
  readonly isOptional?: true;
  /** Where they begin: after `--`, or with the first word that is neither a flag nor an argument of the command. */
  readonly begins: "after --" | "with the first other word";
}

/** What may follow the name of a command. */
export interface Grammar {
  readonly flags?: FlagTable;
  readonly arguments?: readonly Argument[];
  readonly rest?: Rest;
}

/**
 * How flags are written.
 * - `gnu`: `--name value`, `--name=value`, `-nvalue`; switches may share a dash.
 * - `docopt`: the same, and a long flag may be shortened as long as it is unambiguous.
 * - `go`: one dash or two before any name; the last value counts if a flag is repeated.
 */
export type FlagStyle = "gnu" | "docopt" | "go";

/** The dashes with which a flag is shown. */
export const dashes = (name: string, style: FlagStyle): string => (style === "go" || name.length === 1 ? "-" : "--");

export interface Example {
  /** What follows the command's name. */
  readonly line: string;
  readonly about: string;
}

export type ExitCodes = Readonly<Record<number, string>>;

export interface Command extends Grammar {
  readonly name: string;
  /** One sentence. */
  readonly about: string;
  /** More than one sentence, shown by the command's own help only. Lines that begin with a blank are not joined. */
  readonly details?: string;
  /** What follows the command's name in usage lines, one per form; derived from the grammar if absent. */
  readonly usage?: readonly string[];
  readonly examples?: readonly Example[];
  readonly commands?: readonly Command[];
  /** Heading in the help text of the parent; `Commands` if absent. */
  readonly section?: string;
  /** Flags of this command and all commands below it. */
  readonly globalFlags?: FlagTable;
  /** Holds for all commands below as well; `gnu` if absent. */
  readonly style?: FlagStyle;
  /** Advice for a user who gives this argument, which is one too many. */
  readonly extraArgumentHint?: (argument: string) => string;
  /**
   * Meanings of the exit codes, without a full stop. Apply to the commands below as well, unless they declare their own.
   * Code 2 means wrong usage in every program and is not declared, unless a command uses it for something else.
   */
  readonly exitCodes?: ExitCodes;
  /** The table of another program, which parses the words after this command's name. */
  readonly program?: () => Promise<Command>;
  /** Absent in a command that only has sub-commands: without one of them it prints its help text. */
  readonly load?: () => Promise<{ readonly run: (call: never) => Promise<number> | number }>;
}

type FlagValue<F extends Flag> = F extends SwitchFlag
  ? boolean
  : F extends NumberFlag
    ? number | WhenAbsent<F>
    : F extends { readonly isRepeatable: true }
      ? readonly string[]
      : F extends { readonly isCheckedByCommand: true }
        ? string | WhenAbsent<F>
        : F extends { readonly values: readonly (infer Value)[] }
          ? Value | WhenAbsent<F>
          : string | WhenAbsent<F>;

type WhenAbsent<F> = F extends { readonly default: string | number } | { readonly isRequired: true }
  ? never
  : undefined;

/** Values of flags by their names: switches are boolean, a flag that was not given has its default or is undefined. */
export type FlagValues<T> = T extends FlagTable ? { readonly [Name in keyof T]: FlagValue<T[Name]> } : unknown;

type ArgumentValue<A> = A extends { readonly isRepeatable: true }
  ? readonly string[]
  : A extends { readonly isOptional: true } | { readonly isCheckedByCommand: true }
    ? string | undefined
    : string;

/** Values of arguments by their names. */
type ArgumentValues<T> = T extends readonly Argument[]
  ? { readonly [A in T[number] as A["name"]]: ArgumentValue<A> }
  : unknown;

/** One run of a command: what was typed, and the means to answer. */
export interface Call<G extends Grammar = Grammar, Global extends FlagTable = Readonly<Record<never, Flag>>> {
  /** The program and the command as the user typed them: `calicoctl ipam show`. */
  readonly commandName: string;
  readonly flags: FlagValues<G["flags"]> & FlagValues<Global>;
  readonly args: ArgumentValues<G["arguments"]>;
  readonly rest: readonly string[];
  readonly io: CommandIo;
}

type Entry<G extends Grammar, Global extends FlagTable> = Omit<Command, keyof Grammar | "load"> &
  G & { readonly load: () => Promise<{ readonly run: (call: Call<G, Global>) => Promise<number> | number }> };

/** Returns the function `command` for a program whose commands all have these flags. */
export const commandsWith =
  <const Global extends FlagTable>(_globalFlags: Global) =>
  <const G extends Grammar>(entry: Entry<G, Global>): Command =>
    entry;
