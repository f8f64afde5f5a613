// Keeps the file `felix-alive`, which shows that Felix runs: Felix updates its modification time every 10 s and deletes it
// on shutdown. The CNI plugin waits for policy only while the file is recent.
import { mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { aborted } from "../../lib/retry.ts";

const TOUCH_INTERVAL_MS = 10_000;

export async function keepAliveFile(prefix: string, signal: AbortSignal): Promise<void> {
  const path = join(prefix, "felix-alive");
  const touch = () => {
    try {
      const now = new Date();
      utimesSync(path, now, now);
    } catch {
      try {
        mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
        writeFileSync(path, "", { mode: 0o644 });
      } catch {
        // The folder cannot be created. Without the file, the CNI plugin does not wait for policy.
      }
    }
  };
  touch();
  const timer = setInterval(touch, TOUCH_INTERVAL_MS);
  await aborted(signal);
  clearInterval(timer);
  rmSync(path, { force: true });
}
