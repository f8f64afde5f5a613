// Finds the code of a worker thread. In the sources this is a file under src/; in the compiled executable it is an entry
// point of its own (scripts/build.ts), in the executable's virtual folder.
import { BUILD } from "../../lib/process/build.ts";

/** @param name path under src/ without `.ts` */
export const workerUrl = (name: string): string | URL =>
  BUILD.isSource ? new URL(`../../${name}.ts`, import.meta.url) : `${import.meta.dir}/${name}.js`;
