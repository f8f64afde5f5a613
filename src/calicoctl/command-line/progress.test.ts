import { expect, test } from "bun:test";
import { silentIo } from "../testing/command-line.ts";
import { progressOf } from "./progress.ts";

function shown(env: Readonly<Record<string, string | undefined>>, isTerminal: boolean, total: number): string {
  let err = "";
  const io = { ...silentIo(env), err: (text: string) => void (err += text), isTerminal: () => isTerminal };
  const report = progressOf(io, "applied");
  for (let done = 1; done <= total; done++) report(done, total);
  return err;
}

const cases = [
  {
    name: "a terminal shows every 25th resource",
    env: {},
    isTerminal: true,
    total: 100,
    want: /^\rapplied 25 of 100.*\r\x1b\[K$/s,
  },
  { name: "nothing is shown for few resources", env: {}, isTerminal: true, total: 99, want: /^$/ },
  { name: "nothing is shown in a file or pipe", env: {}, isTerminal: false, total: 100, want: /^$/ },
  { name: "nothing is shown on a dumb terminal", env: { TERM: "dumb" }, isTerminal: true, total: 100, want: /^$/ },
];
for (const { name, env, isTerminal, total, want } of cases)
  test(`progress: ${name}`, () => expect(shown(env, isTerminal, total)).toMatch(want));
