// Identifies a process by its pid and start time, because the kernel reuses pids.
import { readFileSync } from "node:fs";

export interface ProcessIdentity {
  readonly pid: number;
  /** As `startTimeOf` returns it. */
  readonly startTime: string;
}

/**
 * Returns field 22 of /proc/PID/stat (proc_pid_stat(5)), in clock ticks since boot. Undefined if the process has ended, even
 * if it is still a zombie.
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

export const isRunning = ({ pid, startTime }: ProcessIdentity): boolean => startTimeOf(pid) === startTime;
