/** Runs `work` and aborts its signal on SIGTERM or SIGINT. Errors after that are ignored. */
export async function runUntilSignal(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const controller = new AbortController();
  const stop = () => controller.abort();
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
  try {
    await work(controller.signal);
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  } finally {
    process.off("SIGTERM", stop);
    process.off("SIGINT", stop);
  }
}
