// Copies an archive of diagnostics from a private temporary directory to the working directory. Other users may be able to
// write to the working directory, so an existing file or symbolic link is never overwritten or followed.
import { chmodSync, constants, copyFileSync } from "node:fs";
import { Failure } from "../command-line/failure.ts";

const MAX_ATTEMPTS = 10;

/** Returns the name of the copy: `name.tar.gz`, or `name-2.tar.gz` and so on if that file exists. */
export function copyArchive(source: string, name: string): string {
  chmodSync(source, 0o600);
  for (let i = 1; ; i++) {
    const archive = `${name}${i === 1 ? "" : `-${i}`}.tar.gz`;
    try {
      copyFileSync(source, archive, constants.COPYFILE_EXCL);
      return archive;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST" || i === MAX_ATTEMPTS)
        throw new Failure(`cannot write ${archive}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}
