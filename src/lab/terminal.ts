// Prints the output of `calico lab`: steps with their duration, in colour. Writes are synchronous, so that the output is
// complete when a later step fails. A reader that closes its pipe does not end the command.
import { isatty } from "node:tty";
import { canEraseLine, usesColour } from "../lib/terminal/colour.ts";
import { escapeForTerminal } from "../lib/terminal/escape-control-characters.ts";
import { writeAll } from "../lib/files/write-all.ts";

export interface Terminal {
  readonly colour: boolean;
  /** Width in characters. */
  readonly width: number;
  line(text?: string): void;
  /** Runs a step and prints its name and duration; while it runs, its elapsed time. */
  step<T>(what: string, work: () => T | Promise<T>): Promise<T>;
}

const DEFAULT_WIDTH = 120;
/** How often a step that is still running is reported: on a terminal in its own line, otherwise in a line of its own. */
const TERMINAL_PROGRESS_MS = 1000;
const LOG_PROGRESS_MS = 10_000;
const CODES = { green: 32, red: 31, yellow: 33, dim: 2, bold: 1 } as const;
export type Colour = keyof typeof CODES;

export interface TerminalOptions {
  readonly quiet?: boolean;
  readonly fd?: number;
  readonly progressMs?: number;
}

export function openTerminal(options: TerminalOptions = {}): Terminal {
  const fd = options.fd ?? 1;
  const isTerminal = isatty(fd);
  const colour = usesColour(process.env, isTerminal);
  const rewritesLine = canEraseLine(process.env, isTerminal);
  const progressMs = options.progressMs ?? (rewritesLine ? TERMINAL_PROGRESS_MS : LOG_PROGRESS_MS);
  const write = (text: string) => {
    if (options.quiet !== true) writeAll(fd, isTerminal ? escapeForTerminal(text) : text);
  };
  const lineStart = rewritesLine ? "\r\x1b[K" : "";
  return {
    colour,
    width: (isTerminal && fd === 1 ? process.stdout.columns : 0) || DEFAULT_WIDTH,
    line: (text = "") => write(`${text}\n`),
    async step(what, work) {
      const started = performance.now();
      const elapsed = (digits: number) => `${((performance.now() - started) / 1000).toFixed(digits)} s`;
      if (rewritesLine) write(`  … ${what}`);
      const progress = setInterval(
        () => write(`${lineStart}  … ${what}, ${elapsed(0)}${rewritesLine ? "" : "\n"}`),
        progressMs,
      );
      try {
        const result = await work();
        write(`${lineStart}  ${paint(colour, "green", "✓")} ${what} ${paint(colour, "dim", elapsed(2))}\n`);
        return result;
      } catch (error) {
        write(`${lineStart}  ${paint(colour, "red", "✗")} ${what}\n`);
        throw error;
      } finally {
        clearInterval(progress);
      }
    },
  };
}

export const paint = (on: boolean, colour: Colour, text: string): string =>
  on ? `\x1b[${CODES[colour]}m${text}\x1b[0m` : text;

export const counted = (number: number, what: string): string => `${number} ${what}${number === 1 ? "" : "s"}`;
