// Where the code of a thread lies: beside us in the sources; in the executable an entry of its own (scripts/build.ts), in
// the folder where all its code lies.
import { BUILD } from "../lib/build.ts";

/** @param name path under src/ without its ending */
export const workerUrl = (name: string): string | URL =>
  BUILD.isSource ? new URL(`../${name}.ts`, import.meta.url) : `${import.meta.dir}/${name}.js`;
