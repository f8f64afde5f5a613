// Says that the agent runs: a file whose time is never old while it does. The CNI plugin waits for policy only then.
import { mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { aborted } from "../../lib/retry.ts";

const TOUCH_MS = 10_000;

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
        // No such folder can be made: whoever looks for the file does not wait.
      }
    }
  };
  touch();
  const timer = setInterval(touch, TOUCH_MS);
  await aborted(signal);
  clearInterval(timer);
  rmSync(path, { force: true });
}
