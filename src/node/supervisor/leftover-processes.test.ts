// Tests with real processes which children of a killed calico-node are terminated, and which processes are not touched.
import { afterAll, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { silentLogger } from "../../lib/log/log.ts";
import { startTimeOf } from "../../lib/process/process-identity.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { stopLeftovers } from "./leftover-processes.ts";
import type { SupervisorState } from "./supervisor.ts";

const folder = mkdtempSync(join(tmpdir(), "leftovers-"));
const file = join(folder, "supervisor.json");
const started: ChildProcess[] = [];
afterAll(() => {
  for (const child of started) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

const PLAN = { name: "bird", command: ["sleep", "600"], env: {}, stopSignal: "SIGKILL" } as const;
const ownNamespace = readlinkSync("/proc/self/ns/pid");
/** No process has this pid: the largest one that Linux assigns is below 2^22. */
const NO_PID = 2 ** 22;

async function startChild(...command: readonly [string, ...string[]]) {
  const [program, ...args] = command;
  const child = spawn(program, args, { stdio: "ignore" });
  started.push(child);
  const { pid } = child;
  await eventually(() => readFileSync(`/proc/${pid}/cmdline`, "utf8") === `${command.join("\0")}\0`); // after execve
  const startTime = pid === undefined ? undefined : startTimeOf(pid);
  if (pid === undefined || startTime === undefined) throw new Error(`${program} does not run`);
  return { pid, startTime };
}

async function stopWith(state: SupervisorState): Promise<void> {
  writeFileSync(file, JSON.stringify(state));
  await stopLeftovers({ file, plans: [PLAN], log: silentLogger, withinMs: 2000 });
}

const cases: readonly {
  readonly name: string;
  readonly command?: readonly [string, ...string[]];
  readonly startTime?: (own: string) => string | undefined;
  readonly pidNamespace?: string;
  readonly isStopped: boolean;
}[] = [
  { name: "the recorded child", isStopped: true },
  { name: "a child recorded without a start time, by an older version", startTime: () => undefined, isStopped: true },
  {
    name: "another process with the pid and command line of the child",
    startTime: (own) => String(Number(own) - 1),
    isStopped: false,
  },
  { name: "another program with the pid of the child", command: ["sleep", "601"], isStopped: false },
  { name: "a process with that pid in another pid namespace", pidNamespace: "pid:[1]", isStopped: false },
];

for (const { name, command = PLAN.command, startTime, pidNamespace = ownNamespace, isStopped } of cases)
  test(`${isStopped ? "stops" : "does not stop"} ${name}`, async () => {
    const leftover = await startChild(...command);
    const recorded = startTime === undefined ? leftover.startTime : startTime(leftover.startTime);
    const child = { name: "bird", state: "running", pid: leftover.pid, restarts: 0 } as const;
    await stopWith({
      pid: NO_PID,
      pidNamespace,
      children: [recorded === undefined ? child : { ...child, startTime: recorded }],
    });
    expect(startTimeOf(leftover.pid) === undefined).toBe(isStopped);
  });

test("a child that ignores SIGTERM is killed", async () => {
  const ready = join(folder, "ready");
  const leftover = await startChild(
    "sh",
    "-c",
    `trap '' TERM; : > ${ready}; while :; do sleep 0.1; done`,
    "sh",
    "-felix",
  );
  await eventually(() => Bun.file(ready).exists());
  writeFileSync(
    file,
    JSON.stringify({
      pid: NO_PID,
      pidNamespace: ownNamespace,
      children: [{ name: "felix", state: "running", restarts: 0, ...leftover }],
    } satisfies SupervisorState),
  );
  await stopLeftovers({ file, plans: [], log: silentLogger, withinMs: 300 });
  expect(startTimeOf(leftover.pid)).toBeUndefined();
});
