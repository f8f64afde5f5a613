// Runs a command line for tests, with everything that it prints.
import type { Command } from "../command.ts";
import type { CommandIo } from "../io.ts";
import { runCommandLine } from "../run.ts";

export interface Captured {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** @param io overrides parts of an environment without variables, input and terminal */
export async function runCaptured(
  root: Command,
  argv: readonly string[],
  io: Partial<CommandIo> = {},
  program: string = root.name,
): Promise<Captured> {
  let [out, err] = ["", ""];
  const code = await runCommandLine({
    program,
    root,
    argv,
    io: {
      env: {},
      readStdin: () => new Uint8Array(),
      isTerminal: () => false,
      ...io,
      out: (text) => void (out += text),
      err: (text) => void (err += text),
    },
  });
  return { code, out, err };
}
