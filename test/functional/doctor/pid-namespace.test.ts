// Tests that doctor on the host finds the processes of a calico-node in a container, which have other pids there.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readParts } from "../../../src/calicoctl/doctor/read-parts.ts";
import { processesHere } from "../../../src/calicoctl/node/processes.ts";
import { supervisedProcesses } from "../../../src/calicoctl/node/supervisor.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { SupervisorState } from "../../../src/node/supervisor/supervisor.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: this makes pid namespaces");
const folder = mkdtempSync(join(tmpdir(), "calico-pids-"));
const supervisorFile = join(folder, "supervisor.json");
let container: ChildProcess;
let ended: Promise<unknown>;

const state = () => JSON.parse(readFileSync(supervisorFile, "utf8")) as SupervisorState;
const parts = () => readParts({ supervisorFile, aliveFile: join(folder, "felix-alive"), answering: new Set() });
const felixOnHost = (): number | undefined => {
  const inside = state().children.find(({ name }) => name === "felix")?.pid;
  return inside === undefined ? undefined : supervisedProcesses(state(), processesHere()).find(inside)?.pid;
};

beforeAll(async () => {
  // The first process of the namespace is `sh`, so that the supervisor has another pid than 1.
  const script = `"$@" & wait`;
  const program = [process.execPath, join(import.meta.dir, "supervised-process.ts"), supervisorFile];
  container = spawn(
    "unshare",
    ["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", ...program],
    {
      stdio: "ignore",
    },
  );
  ended = new Promise((resolve) => container.once("exit", resolve));
  await eventually(() => {
    try {
      return state().children.every(({ state: now }) => now === "running");
    } catch {
      return false; // not written yet
    }
  });
}, 30_000);
afterAll(async () => {
  container.kill("SIGKILL"); // ends all processes of the namespace
  await ended;
  rmSync(folder, { recursive: true });
});

test("processes in another pid namespace are found by their pids on the host", () => {
  expect(state().pid).toBeLessThan(10);
  expect(parts()).toEqual([
    { name: "felix", isRunning: true, detail: "it is running" },
    { name: "bird", isRunning: true, detail: "it is running" },
  ]);
});

test("a stopped process is reported with the command that works on the host", async () => {
  const pid = felixOnHost();
  if (pid === undefined) throw new Error("felix was not found");
  process.kill(pid, "SIGSTOP");
  const [felix, bird] = await eventually(() => {
    const now = parts();
    return now[0]?.isStuck === true && now;
  });
  expect(felix).toMatchObject({ name: "felix", isRunning: false, fix: `kill -CONT ${pid}, or restart calico-node` });
  expect(bird?.isRunning).toBe(true);
  process.kill(pid, "SIGCONT");
  await eventually(() => parts()[0]?.isRunning === true);
});

test("in a pid namespace in which the processes are not visible, a recent alive file proves that they run", () => {
  // In another container, doctor reads pids of processes that it cannot find.
  const script = `const { readParts } = await import(${JSON.stringify(join(import.meta.dir, "../../../src/calicoctl/doctor/read-parts.ts"))});
    const read = (answering) => readParts({ supervisorFile: ${JSON.stringify(supervisorFile)}, aliveFile: process.argv[1], answering: new Set(answering) });
    console.log(JSON.stringify([read(["bird"]), read([])]));`;
  const elsewhere = (aliveFile: string) => {
    const { stdout, stderr } = spawnSync(
      "unshare",
      ["--pid", "--fork", "--kill-child", "--mount-proc", process.execPath, "-e", script, aliveFile],
      { encoding: "utf8" },
    );
    if (stderr !== "") throw new Error(stderr);
    return JSON.parse(stdout) as readonly ReturnType<typeof readParts>[];
  };
  const alive = elsewhere(supervisorFile); // any recently written file
  expect(alive.map((each) => each.map(({ name, isRunning }) => `${name} ${isRunning}`))).toEqual([
    ["bird true"],
    ["bird false"],
  ]);
  expect(elsewhere(join(folder, "none"))[0]).toMatchObject([{ name: "calico-node", isRunning: false }]);
});

test("after the container has ended, calico-node is reported as not running", async () => {
  container.kill("SIGKILL");
  await ended;
  const [only] = await eventually(() => {
    const now = parts();
    return now[0]?.name === "calico-node" && now;
  });
  expect(only).toMatchObject({ isRunning: false, detail: expect.stringContaining("has ended") });
});
