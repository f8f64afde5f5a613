// The parts of a calico-node that was killed, as real processes: which of them are ended and which are left alone.
import { afterAll, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { silentLogger } from "../../lib/log/log.ts";
import { startTimeOf } from "../../lib/process/process-identity.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { endLeftovers } from "./leftover-processes.ts";
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

async function startPart(...command: readonly [string, ...string[]]) {
  const [program, ...args] = command;
  const child = spawn(program, args, { stdio: "ignore" });
  started.push(child);
  const { pid } = child;
  await eventually(() => readFileSync(`/proc/${pid}/cmdline`, "utf8") === `${command.join("\0")}\0`); // after execve
  const startTime = pid === undefined ? undefined : startTimeOf(pid);
  if (pid === undefined || startTime === undefined) throw new Error(`${program} does not run`);
  return { pid, startTime };
}

async function endWith(state: SupervisorState): Promise<void> {
  writeFileSync(file, JSON.stringify(state));
  await endLeftovers({ file, plans: [PLAN], log: silentLogger, withinMs: 2000 });
}

const cases: readonly {
  readonly name: string;
  readonly command?: readonly [string, ...string[]];
  readonly startTime?: (own: string) => string | undefined;
  readonly pidNamespace?: string;
  readonly isEnded: boolean;
}[] = [
  { name: "the part that is recorded", isEnded: true },
  { name: "a part without a start time, from an older version", startTime: () => undefined, isEnded: true },
  {
    name: "another process with the pid and even the command line of the part",
    startTime: (own) => String(Number(own) - 1),
    isEnded: false,
  },
  { name: "another program with the pid of the part", command: ["sleep", "601"], isEnded: false },
  { name: "a process with that pid in another pid namespace", pidNamespace: "pid:[1]", isEnded: false },
];

for (const { name, command = PLAN.command, startTime, pidNamespace = ownNamespace, isEnded } of cases)
  test(`${isEnded ? "ends" : "does not end"} ${name}`, async () => {
    const part = await startPart(...command);
    const recorded = startTime === undefined ? part.startTime : startTime(part.startTime);
    const child = { name: "bird", state: "running", pid: part.pid, restarts: 0 } as const;
    await endWith({
      pid: NO_PID,
      pidNamespace,
      children: [recorded === undefined ? child : { ...child, startTime: recorded }],
    });
    expect(startTimeOf(part.pid) === undefined).toBe(isEnded);
  });

test("a part that ignores SIGTERM is killed", async () => {
  const ready = join(folder, "ready");
  const part = await startPart("sh", "-c", `trap '' TERM; : > ${ready}; while :; do sleep 0.1; done`, "sh", "-felix");
  await eventually(() => Bun.file(ready).exists());
  writeFileSync(
    file,
    JSON.stringify({
      pid: NO_PID,
      pidNamespace: ownNamespace,
      children: [{ name: "felix", state: "running", restarts: 0, ...part }],
    } satisfies SupervisorState),
  );
  await endLeftovers({ file, plans: [], log: silentLogger, withinMs: 300 });
  expect(startTimeOf(part.pid)).toBeUndefined();
});
