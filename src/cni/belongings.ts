// What a service was started from: its executable, the files by which it reaches its datastore, the datastore's own file.
// When one of them is another now, what the service has in memory is of the past.
import { readlinkSync, type Stats, statSync } from "node:fs";
import { identityOf } from "./sight.ts";

export class Belongings {
  readonly #all: readonly { readonly what: string; readonly read: () => string | undefined; readonly was: unknown }[];

  /**
   * @param executable where it lies; what runs is /proc/self/exe, also when that is somewhere else by now
   * @param files whose content counts
   * @param database of which only counts that it is the same file; absent: there is none
   */
  constructor(executable: string, files: readonly string[], database: string | undefined) {
    const running = versionOf("/proc/self/exe");
    this.#all = [
      { what: "the executable was replaced", read: () => versionOf(executable), was: running },
      ...files.map((file) => ({ what: `${file} has changed`, read: () => contentOf(file), was: contentOf(file) })),
      ...(database === undefined
        ? []
        : [{ what: `${database} is another file`, read: () => identityOf(database), was: identityOf(database) }]),
    ];
  }

  /** In words; nothing when all is as it was. */
  whatChanged(): string | undefined {
    return this.#all.find(({ read, was }) => read() !== was)?.what;
  }
}

/** Where the running program lies, or lay. */
export const executablePath = (): string => readlinkSync("/proc/self/exe").replace(/ \(deleted\)$/, "");

function versionOf(path: string): string | undefined {
  const stats = statsOf(path);
  return stats && `${stats.dev}:${stats.ino}:${stats.size}:${stats.mtimeMs}`;
}

/** As long as before, and with its date put back, a file may hold something else; its last change nobody can put back. */
const contentOf = (path: string): string | undefined => {
  const version = versionOf(path);
  return version && `${version}:${statsOf(path)?.ctimeMs}`;
};

function statsOf(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch {
    return undefined;
  }
}
