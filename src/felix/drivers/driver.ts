// What the agent drives: the Linux dataplane, a process of somebody else, or a dump for people.
import type { DataplaneDriver, DataplaneReport } from "../../calc/index.ts";

export interface RunningDriver extends DataplaneDriver {
  /** Works until the signal aborts; ends before that only by throwing. Nothing it has programmed is taken back. */
  run(signal: AbortSignal): Promise<void>;
  /** For tests of the watchdog, where we are the ones who watch: does nothing from now on. */
  hang?(): void;
}

export type ReportListener = (report: DataplaneReport) => void;

/** The dataplane ended by itself. */
export class DriverStopped extends Error {
  override readonly name = "DriverStopped";
}
