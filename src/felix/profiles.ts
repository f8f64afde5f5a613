// Writes memory and CPU profiles. A memory profile contains everything in memory, including secrets.
import { writePrivateFile } from "../lib/files/private-file.ts";
import { delay } from "../lib/retry.ts";

const CPU_PROFILE_MS = 10_000;

/** Replaces `<timestamp>` in the path by the time: `2026-03-01-10:00:00`. */
export const profilePath = (path: string, now: Date): string =>
  path.replaceAll("<timestamp>", now.toISOString().slice(0, 19).replace("T", "-"));

/** Writes a heap snapshot in the format of Chrome's developer tools. */
export async function writeHeapProfile(path: string): Promise<void> {
  writePrivateFile(path, Bun.generateHeapSnapshot("v8"));
}

/** Writes a CPU profile of the next ten seconds, in the format of Chrome's developer tools. */
export async function writeCpuProfile(path: string, durationMs = CPU_PROFILE_MS): Promise<void> {
  const { Session } = await import("node:inspector/promises");
  const session = new Session();
  session.connect();
  try {
    await session.post("Profiler.enable");
    await session.post("Profiler.start");
    await delay(durationMs);
    const { profile } = await session.post("Profiler.stop");
    writePrivateFile(path, JSON.stringify(profile));
  } finally {
    session.disconnect();
  }
}
