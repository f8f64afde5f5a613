// Runs an inexpensive check of the kernel every second.
import { describeError, type Logger } from "../../lib/log/log.ts";
import { aborted } from "../../lib/retry.ts";

const CHECK_MS = 1000;

/** Runs until the signal aborts. A failure is logged once, and the checks continue. */
export async function everySecond(
  options: { readonly name: string; readonly check: () => void; readonly logger: Logger },
  signal: AbortSignal,
): Promise<void> {
  let failure = "";
  const check = () => {
    try {
      options.check();
      failure = "";
    } catch (error) {
      const reason = describeError(error);
      if (reason !== failure)
        options.logger.warn("checking for changes by other programs failed", { part: options.name, error: reason });
      failure = reason;
    }
  };
  const timer = setInterval(check, CHECK_MS);
  await aborted(signal);
  clearInterval(timer);
}
