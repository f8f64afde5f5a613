// Where an archive of diagnostics ends: made where nobody else can write, then put beside who asked. That may be a folder
// for all, so nothing that lies there under its name, a link least of all, is written to or through.
import { chmodSync, constants, copyFileSync } from "node:fs";
import { Failure } from "../command-line/failure.ts";

const MOST_NAMES = 10;

/** The name it got: `wanted.tar.gz`, or with a number when that is taken. */
export function handOver(made: string, wanted: string): string {
  chmodSync(made, 0o600);
  for (let i = 1; ; i++) {
    const archive = `${wanted}${i === 1 ? "" : `-${i}`}.tar.gz`;
    try {
      copyFileSync(made, archive, constants.COPYFILE_EXCL);
      return archive;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST" || i === MOST_NAMES)
        throw new Failure(`cannot write ${archive}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}
