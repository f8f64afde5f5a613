// How far a long command is, on a terminal only: one line that is rewritten and taken away at the end.
import type { World } from "./command.ts";

const WORTH_SHOWING = 100;
const EVERY = 25;

export function progressOf(world: World, verb: string): (done: number, total: number) => void {
  let shows: boolean | undefined;
  return (done, total) => {
    if (total < WORTH_SHOWING) return;
    shows ??= world.isTerminal("err");
    if (!shows) return;
    if (done === total) world.err("\r\x1b[K");
    else if (done % EVERY === 0) world.err(`\r${verb} ${done} of ${total}`);
  };
}
