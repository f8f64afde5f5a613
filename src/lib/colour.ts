// Decides for every program whether its output is coloured.

/** True on a terminal, unless NO_COLOR is set (https://no-color.org) or TERM is `dumb`. */
export const usesColour = (env: Readonly<Record<string, string | undefined>>, isTerminal: boolean): boolean =>
  isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb";
