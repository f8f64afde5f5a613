// Preloaded into a program (`bun --preload`), runs a timer every 10 ms. A request to the Unix socket TIMER_SOCKET returns how
// long the event loop was blocked at most (the longest gap between two runs of the timer) and the CPU time of the process,
// both since the previous request.
import { closeSync, openSync, readSync } from "node:fs";
import { createServer } from "node:http";

const INTERVAL_MS = 10;

export interface Timings {
  readonly longestGapMs: number;
  /** The most CPU time of the main thread between two runs of the timer: unlike the gap it is independent of other load. */
  readonly longestRunMs: number;
  readonly userMs: number;
  readonly systemMs: number;
}

let lastRunMs = performance.now();
let longestGapMs = 0;
let lastCpuMs = mainThreadMs();
let longestRunMs = 0;
let cpu = process.cpuUsage();

const onTimer = () => {
  const now = performance.now();
  longestGapMs = Math.max(longestGapMs, now - lastRunMs);
  lastRunMs = now;
  const cpuMs = mainThreadMs();
  longestRunMs = Math.max(longestRunMs, cpuMs - lastCpuMs);
  lastCpuMs = cpuMs;
};

/** https://docs.kernel.org/scheduler/sched-stats.html: the first number is the time on a CPU in nanoseconds. */
function mainThreadMs(): number {
  const file = openSync(`/proc/self/task/${process.pid}/schedstat`, "r");
  const bytes = Buffer.alloc(100);
  const length = readSync(file, bytes);
  closeSync(file);
  return Number(bytes.toString("latin1", 0, length).split(" ")[0]) / 1e6;
}

setInterval(onTimer, INTERVAL_MS).unref();
createServer((_, response) => {
  onTimer();
  const { user, system } = process.cpuUsage(cpu);
  const timings: Timings = { longestGapMs, longestRunMs, userMs: user / 1000, systemMs: system / 1000 };
  response.end(JSON.stringify(timings));
  longestGapMs = 0;
  longestRunMs = 0;
  cpu = process.cpuUsage();
})
  .listen(process.env["TIMER_SOCKET"])
  .unref();
