// Which program was asked for. Every role is imported only when it is the one: eager imports cost
// more start-up time than everything else together.
import { basename } from "node:path";
import { BUILD } from "./lib/build.ts";

type Program = (argv: readonly string[]) => Promise<number> | number;

const programs: Readonly<Record<string, () => Promise<{ main: Program }>>> = {};

async function run(): Promise<number> {
  const role = basename(process.argv0);
  const argv = process.argv.slice(2);
  const load = programs[role];
  if (load !== undefined) return (await load()).main(argv);
  console.log(`calico ${BUILD.version} (${BUILD.commit})`);
  return 0;
}

process.exitCode = await run();
