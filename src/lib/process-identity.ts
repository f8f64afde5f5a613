// Identifies a process beyond its pid, which the kernel assigns again after the process has ended.
import { readFileSync } from "node:fs";

export interface Identity {
  readonly pid: number;
  /** As `startTimeOf` returns it. */
  readonly startTime: string;
}

/**
 * Field 22 of /proc/PID/stat (proc_pid_stat(5)), in clock ticks since boot. Undefined if the process has ended, also if it
 * was not reaped yet.
 */
export function startTimeOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

export const isRunning = ({ pid, startTime }: Identity): boolean => startTimeOf(pid) === startTime;
