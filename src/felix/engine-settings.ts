// Configures the JavaScript engine for Felix. The engine reads these environment variables before any of calico-ts's code
// runs. The executable therefore executes itself again with them: this takes 6 ms and keeps the process ID.
//
// Measured with 10,000 endpoints and 1,000 policies:
//
// - The last compiler tier (FTL) costs 0.7 s of 2.6 s CPU at startup, and an agent that then waits does not gain from it.
// - The periodic garbage collection is most of the CPU that an idle agent uses.
// - A small assumed RAM size keeps the heap close to the live data.
// - A greater growth factor for a small heap saves a third of the collections at startup and costs about 10 MB.
import { BUILD } from "../lib/process/build.ts";

const SETTINGS: Readonly<Record<string, string>> = {
  BUN_GC_TIMER_DISABLE: "1",
  BUN_JSC_useFTLJIT: "0",
  BUN_JSC_forceRAMSize: "400000000",
  BUN_JSC_smallHeapGrowthFactor: "2.5",
};

/** Returns the environment for the engine, or undefined if all variables are set. Existing values are kept. */
export function engineEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> | undefined {
  if (Object.keys(SETTINGS).every((name) => env[name] !== undefined)) return undefined;
  const existing = Object.entries(env).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  );
  return { ...SETTINGS, ...Object.fromEntries(existing) };
}

/** Executes the program again if variables are missing, and then does not return. Does nothing when run from sources. */
export function applyEngineSettings(): void {
  if (BUILD.isSource || process.execve === undefined) return;
  const env = engineEnvironment(process.env);
  if (env !== undefined) process.execve(process.execPath, [process.argv0, ...process.argv.slice(2)], env);
}
