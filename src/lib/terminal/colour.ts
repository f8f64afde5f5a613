// Decides for every program whether its output is coloured, and whether it may erase a line.

/** True on a terminal, unless NO_COLOR is set (https://no-color.org) or TERM is `dumb`. */
export const usesColour = (env: Readonly<Record<string, string | undefined>>, isTerminal: boolean): boolean =>
  isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb";

/** True on a terminal that understands control sequences: a line can be erased and written again. */
export const canEraseLine = (env: Readonly<Record<string, string | undefined>>, isTerminal: boolean): boolean =>
  isTerminal && env["TERM"] !== "dumb";
