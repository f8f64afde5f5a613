// What a person sees: steps with their time, tables, colour only on a terminal. Written at once, so that a lab's output is
// complete even when a later step dies, and a reader that goes away does not end what is being made.
import { isatty } from "node:tty";
import { forTerminal } from "../lib/visible-text.ts";
import { writeAll } from "../lib/write-all.ts";

export interface Terminal {
  readonly colour: boolean;
  /** In characters. */
  readonly width: number;
  line(text?: string): void;
  /** Runs a step, saying what and for how long. */
  step<T>(what: string, work: () => T | Promise<T>): Promise<T>;
}

const USUAL_WIDTH = 120;
const CODES = { green: 32, red: 31, yellow: 33, dim: 2, bold: 1 } as const;
export type Colour = keyof typeof CODES;

export function openTerminal(options: { readonly quiet?: boolean; readonly fd?: number } = {}): Terminal {
  const fd = options.fd ?? 1;
  const isTerminal = isatty(fd);
  const colour = isTerminal && process.env["NO_COLOR"] === undefined;
  const write = (text: string) => {
    if (options.quiet !== true) writeAll(fd, isTerminal ? forTerminal(text) : text);
  };
  return {
    colour,
    width: (isTerminal && fd === 1 ? process.stdout.columns : 0) || USUAL_WIDTH,
    line: (text = "") => write(`${text}\n`),
    async step(what, work) {
      const started = performance.now();
      if (isTerminal) write(`  … ${what}`);
      try {
        const result = await work();
        const seconds = ((performance.now() - started) / 1000).toFixed(2);
        write(
          `${isTerminal ? "\r\x1b[K" : ""}  ${paint(colour, "green", "✓")} ${what} ${paint(colour, "dim", `${seconds} s`)}\n`,
        );
        return result;
      } catch (error) {
        write(`${isTerminal ? "\r\x1b[K" : ""}  ${paint(colour, "red", "✗")} ${what}\n`);
        throw error;
      }
    },
  };
}

export const paint = (on: boolean, colour: Colour, text: string): string =>
  on ? `\x1b[${CODES[colour]}m${text}\x1b[0m` : text;

export const counted = (number: number, what: string): string => `${number} ${what}${number === 1 ? "" : "s"}`;

/** Without colour codes. */
export const plainLength = (text: string): number => text.replace(/\x1b\[\d+m/g, "").length;

/** Columns padded to their widest cell; widths ignore colour codes. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows)
    for (const [i, cell] of row.entries()) widths[i] = Math.max(widths[i] ?? 0, plainLength(cell));
  return rows
    .map((row) =>
      row
        .map((cell, i) => cell + " ".repeat((widths[i] ?? 0) - plainLength(cell)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
