// BIRD's files: written beside the old ones, tried by BIRD itself, put in place in one step, and BIRD told. A file that
// BIRD refuses never replaces one that it took.
import { execFile } from "node:child_process";
import { chmodSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { BirdControl, BirdUnreachable } from "../bird/control.ts";

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
        if (error instanceof BirdUnreachable && error.isAbsent) return "absent";
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

/** One file of BIRD's, and whether BIRD is known to have read it as it is. */
export class ConfigurationFile {
  readonly #file: string;
  readonly #bird: Bird;
  /** False until told: when we start, we do not know what a running BIRD has read. */
  #isRead = false;

  constructor(file: string, bird: Bird) {
    this.#file = file;
    this.#bird = bird;
  }

  get isRead(): boolean {
    return this.#isRead;
  }

  /** As it is in place. */
  get text(): string | undefined {
    return readFileIfExists(this.#file);
  }

  /** @throws ConfigurationRefused; BirdRefused or BirdUnreachable when the file is in place but BIRD has not read it */
  async install(text: string): Promise<Installed> {
    if (this.text !== text) {
      this.#isRead = false;
      await this.#put(text);
    } else if (this.#isRead) return "unchanged";
    const result = await this.#bird.reload();
    this.#isRead = result === "reconfigured";
    return result;
  }

  /** What BIRD says of a text, which is not put in place. */
  async judge(text: string): Promise<string | undefined> {
    const staged = this.#stage(text);
    try {
      return await this.#bird.check(staged);
    } finally {
      rmSync(staged, { force: true });
    }
  }

  async #put(text: string): Promise<void> {
    const staged = this.#stage(text);
    try {
      const refusal = await this.#bird.check(staged);
      if (refusal !== undefined) throw new ConfigurationRefused(this.#file, refusal);
      renameSync(staged, this.#file);
    } finally {
      rmSync(staged, { force: true });
    }
  }

  #stage(text: string): string {
    mkdirSync(dirname(this.#file), { recursive: true });
    const staged = join(dirname(this.#file), `.${basename(this.#file)}.new`);
    writeFileSync(staged, text, { mode: 0o600 });
    chmodSync(staged, 0o600); // passwords stand in it, whatever it was before
    return staged;
  }
}
