// BIRD's files: written beside the old ones, tried by BIRD itself, put in place in one step, and BIRD told. A file that
// BIRD refuses never replaces one that it took.
import { execFile } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { BirdControl, BirdRefused, BirdUnreachable } from "../bird/control.ts";

/** What the service needs of BIRD. */
export interface Bird {
  /** Undefined when BIRD takes the file, else what it says of it. */
  check(file: string): Promise<string | undefined>;
  /** Has it read its file again; "absent" when none runs, which will read the file when it starts. */
  reload(): Promise<"reconfigured" | "absent">;
}

/** A real BIRD: its executable for checking, its socket for telling. */
export function birdProcess(options: { readonly executable?: string; readonly socket: string }): Bird {
  const executable = options.executable ?? "bird";
  return {
    check: async (file) => {
      try {
        await promisify(execFile)(executable, ["-p", "-c", file], { timeout: 20_000 });
        return undefined;
      } catch (error) {
        const { stderr, message } = error as { readonly stderr?: string; readonly message: string };
        return (stderr ?? "").trim() || message;
      }
    },
    reload: async () => {
      try {
        using control = await BirdControl.connect(options.socket);
        await control.ask("configure");
        return "reconfigured";
      } catch (error) {
        if (error instanceof BirdUnreachable) return "absent";
        throw error;
      }
    },
  };
}

export type Installed = "unchanged" | "reconfigured" | "absent";

/** BIRD does not take the file; the old one stands. */
export class ConfigurationRefused extends Error {
  override readonly name = "ConfigurationRefused";
  constructor(
    readonly file: string,
    readonly reason: string,
  ) {
    super(`BIRD refuses the new ${basename(file)}, the old one stays: ${reason}`);
  }
}

/** @throws ConfigurationRefused, BirdRefused */
export async function installConfiguration(file: string, text: string, bird: Bird): Promise<Installed> {
  if (readIfThere(file) === text) return "unchanged";
  mkdirSync(dirname(file), { recursive: true });
  const staged = join(dirname(file), `.${basename(file)}.new`);
  try {
    writeFileSync(staged, text, { mode: 0o600 });
    chmodSync(staged, 0o600); // passwords stand in it, whatever it was before
    const refusal = await bird.check(staged);
    if (refusal !== undefined) throw new ConfigurationRefused(file, refusal);
    renameSync(staged, file);
  } finally {
    rmSync(staged, { force: true });
  }
  return bird.reload();
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}

export { BirdRefused };
