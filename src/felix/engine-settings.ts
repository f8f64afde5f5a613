// How the JavaScript engine shall run for the agent. It reads these once, before any of our code, so the executable
// starts itself again with them: six milliseconds, once, under the same process id.
//
// Measured at 10,000 endpoints and 1,000 policies: the last compiler tier costs 0.7 s of CPU in a start of 2.6 and gives
// nothing back to an agent that then waits; a collection every now and then because a second has passed is most of what
// an idle agent uses; believing the machine small keeps the heap near what it holds; and letting a small heap grow by
// half more before it is collected saves a third of the collections of a start, for some 10 MB.
import { BUILD } from "../lib/build.ts";

const SETTINGS: Readonly<Record<string, string>> = {
  BUN_GC_TIMER_DISABLE: "1",
  BUN_JSC_useFTLJIT: "0",
  BUN_JSC_forceRAMSize: "400000000",
  BUN_JSC_smallHeapGrowthFactor: "2.5",
};

/** The environment the engine should have; nothing when it has it. What somebody set by hand stays. */
export function wantedEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> | undefined {
  if (Object.keys(SETTINGS).every((name) => env[name] !== undefined)) return undefined;
  const given = Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
  return { ...SETTINGS, ...Object.fromEntries(given) };
}

/** Does not return when the engine has to be started anew. Run from sources everything stays as it is. */
export function applyEngineSettings(): void {
  if (BUILD.isSource || process.execve === undefined) return;
  const env = wantedEnvironment(process.env);
  if (env !== undefined) process.execve(process.execPath, [process.argv0, ...process.argv.slice(2)], env);
}
