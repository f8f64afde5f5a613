// Where the code of a thread lies: beside us in the sources, an entry of its own in the executable (scripts/build.ts).

/** @param name path under src/ without its ending */
export function workerUrl(name: string): string | URL {
  return import.meta.url.startsWith("file:///$bunfs/")
    ? `/$bunfs/root/${name}.js`
    : new URL(`../${name}.ts`, import.meta.url);
}
