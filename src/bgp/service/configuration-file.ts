// Installs BIRD's configuration files: writes a temporary file, lets BIRD check it, renames it, and makes BIRD reload it. A file
// that BIRD rejects never replaces a valid one.
import { execFile } from "node:child_process";
import { chmodSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { BirdControl, BirdUnreachable } from "../bird/control.ts";

/** The operations of BIRD that the service uses. */
export interface Bird {
  /** Returns undefined if the file is valid, otherwise BIRD's error. */
  check(file: string): Promise<string | undefined>;
  /** Makes BIRD read its file again. Returns "absent" if BIRD does not run; it reads the file when it starts. */
  reload(): Promise<"reconfigured" | "absent">;
}

/** Checks files with BIRD's executable, and reloads them through its control socket. */
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
        await control.request("configure");
        return "reconfigured";
      } catch (error) {
        if (error instanceof BirdUnreachable && error.isAbsent) return "absent";
        throw error;
      }
    },
  };
}

export type Installed = "unchanged" | "reconfigured" | "absent";

/** BIRD rejected the new file; the old file is unchanged. */
export class ConfigurationRejected extends Error {
  override readonly name = "ConfigurationRejected";
  constructor(
    readonly file: string,
    readonly reason: string,
  ) {
    super(`BIRD rejected the new ${basename(file)}; keeping the old one: ${reason}`);
  }
}

/** One configuration file, and whether BIRD has read its current content. */
export class ConfigurationFile {
  readonly #file: string;
  readonly #bird: Bird;
  /** Initially false, because a running BIRD may have read an older file. */
  #isRead = false;

  constructor(file: string, bird: Bird) {
    this.#file = file;
    this.#bird = bird;
  }

  get isRead(): boolean {
    return this.#isRead;
  }

  /** The installed text. */
  get text(): string | undefined {
    return readFileIfExists(this.#file);
  }

  /** @throws ConfigurationRejected; BirdRejected or BirdUnreachable if the file is installed but BIRD has not read it */
  async install(text: string): Promise<Installed> {
    if (this.text !== text) {
      this.#isRead = false;
      await this.#replace(text);
    } else if (this.#isRead) return "unchanged";
    const result = await this.#bird.reload();
    this.#isRead = result === "reconfigured";
    return result;
  }

  /** Returns BIRD's error for a text, without installing it. */
  async check(text: string): Promise<string | undefined> {
    const staged = this.#stage(text);
    try {
      return await this.#bird.check(staged);
    } finally {
      rmSync(staged, { force: true });
    }
  }

  async #replace(text: string): Promise<void> {
    const staged = this.#stage(text);
    try {
      const rejection = await this.#bird.check(staged);
      if (rejection !== undefined) throw new ConfigurationRejected(this.#file, rejection);
      renameSync(staged, this.#file);
    } finally {
      rmSync(staged, { force: true });
    }
  }

  #stage(text: string): string {
    mkdirSync(dirname(this.#file), { recursive: true });
    const staged = join(dirname(this.#file), `.${basename(this.#file)}.new`);
    writeFileSync(staged, text, { mode: 0o600 });
    chmodSync(staged, 0o600); // contains passwords; writeFileSync does not change the mode of an existing file
    return staged;
  }
}
