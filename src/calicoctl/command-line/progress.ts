// Shows the progress of a long command in one line of a terminal, and erases it at the end.
import type { CommandIo } from "../../lib/command-line/io.ts";
import { canEraseLine } from "../../lib/terminal/colour.ts";

/** With fewer resources, the command ends before a user could read the line. */
const MIN_TOTAL = 100;
const INTERVAL = 25;

export function progressOf(io: CommandIo, verb: string): (done: number, total: number) => void {
  let isShown: boolean | undefined;
  return (done, total) => {
    if (total < MIN_TOTAL) return;
    isShown ??= canEraseLine(io.env, io.isTerminal("err"));
    if (!isShown) return;
    if (done === total) io.err("\r\x1b[K");
    else if (done % INTERVAL === 0) io.err(`\r${verb} ${done} of ${total}`);
  };
}
