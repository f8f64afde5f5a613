// Profiles for people who want to know where memory or time goes. One of memory shows all that is in it, secrets too.
import { writePrivateFile } from "../lib/private-file.ts";
import { delay } from "../lib/retry.ts";

const CPU_PROFILE_MS = 10_000;

/** `<timestamp>` in the path becomes the time: `2026-03-01-10:00:00`. */
export const profilePath = (path: string, now: Date): string =>
  path.replaceAll("<timestamp>", now.toISOString().slice(0, 19).replace("T", "-"));

/** A heap snapshot as Safari's and Chrome's tools read it. */
export async function writeHeapProfile(path: string): Promise<void> {
  writePrivateFile(path, Bun.generateHeapSnapshot("v8"));
}

/** Where time went in the next ten seconds, as Chrome's tools read it. */
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
