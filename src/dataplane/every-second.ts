// Small questions to the kernel that are asked every second.
import { describeError, type Logger } from "../lib/log.ts";
import { aborted } from "../lib/retry.ts";

const CHECK_MS = 1000;

/** Until the signal aborts. A failure is told once, and the next question asked all the same. */
export async function everySecond(
  what: { readonly name: string; readonly check: () => void; readonly logger: Logger },
  signal: AbortSignal,
): Promise<void> {
  let failure = "";
  const check = () => {
    try {
      what.check();
      failure = "";
    } catch (error) {
      const reason = describeError(error);
      if (reason !== failure) what.logger.warn(`${what.name} cannot be watched`, { error: reason });
      failure = reason;
    }
  };
  const timer = setInterval(check, CHECK_MS);
  await aborted(signal);
  clearInterval(timer);
}
