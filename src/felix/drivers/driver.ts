// Defines a running dataplane driver: the Linux dataplane, an external process, or a dump.
import type { DataplaneDriver, DataplaneReport } from "../../calc/index.ts";

export interface RunningDriver extends DataplaneDriver {
  /** Runs until the signal aborts, or throws. Programmed state stays in the kernel. */
  run(signal: AbortSignal): Promise<void>;
  /** Stops all work without ending `run`, to test the watchdog. Drivers without a watchdog do not have it. */
  hang?(): void;
}

export type ReportListener = (report: DataplaneReport) => void;

/** The external dataplane driver exited or failed. */
export class DriverStopped extends Error {
  override readonly name = "DriverStopped";
}
