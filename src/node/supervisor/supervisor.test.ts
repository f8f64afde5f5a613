import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { silentLogger } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { type ChildPlan, Supervisor, type SupervisorState } from "./supervisor.ts";

class Bench implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "supervisor-"));
  readonly file = join(this.folder, "state.json");
  readonly lines: string[] = [];
  readonly #controller = new AbortController();
  #running: Promise<void> | undefined;

  start(...plans: Partial<ChildPlan>[]): Supervisor {
    const supervisor = new Supervisor({
      plans: plans.map((plan, i) => ({
        name: `child${i}`,
        command: ["sleep", "60"],
        env: { PATH: process.env["PATH"] },
        stopSignal: "SIGTERM",
        ...plan,
      })),
      file: this.file,
      log: silentLogger,
      output: (child, line) => this.lines.push(`${child}: ${line}`),
      backoff: { firstMs: 5, maxMs: 20 },
      stopWithinMs: 200,
    });
    this.#running = supervisor.run(this.#controller.signal);
    return supervisor;
  }
  state(): SupervisorState {
    return JSON.parse(readFileSync(this.file, "utf8")) as SupervisorState;
  }
  async stop(): Promise<void> {
    this.#controller.abort();
    await this.#running;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
const shell = (script: string): Pick<ChildPlan, "command"> => ({ command: ["sh", "-c", script] });

test("NB-009 a child that exits is restarted, and the state file has the number of restarts and the exit code", async () => {
  await using bench = new Bench();
  bench.start({ ...shell("echo hello; echo trouble >&2; exit 3") });
  await eventually(() => (bench.state().children[0]?.restarts ?? 0) >= 3);
  expect(bench.state().children[0]?.lastExit).toMatchObject({ code: 3, signal: null });
  expect(bench.lines.slice(0, 2).sort()).toEqual(["child0: hello", "child0: trouble"]);
});

test("a child that requests a restart by its exit code is restarting; after several requests in a row it is failing", async () => {
  await using bench = new Bench();
  const restarts = (part: number) => bench.state().children[part]?.restarts ?? 0;
  const restart = { ...shell("exit 129"), restartCode: 129 };
  bench.start(
    { ...restart, startsWhen: () => restarts(0) < 1 },
    { ...restart, startsWhen: () => restarts(1) < 4 },
    { ...shell("exit 129"), startsWhen: () => restarts(2) < 1 },
  );
  await eventually(() => restarts(0) === 1 && restarts(1) === 4 && restarts(2) === 1);
  expect(bench.state().children.map(({ state }) => state)).toEqual(["restarting", "failing", "failing"]);
  expect(bench.state().children[0]).toMatchObject({ restarts: 1, lastExit: { code: 129 } });
});

test("the state file names a missing program and how to install it", async () => {
  await using bench = new Bench();
  bench.start({ command: ["no-such-bird"], ifMissing: "install BIRD 2" });
  await eventually(() => (bench.state().children[0]?.restarts ?? 0) >= 1);
  expect(bench.state().children[0]?.lastExit?.error).toBe("no-such-bird not found in PATH: install BIRD 2");
});

test("a killed child is restarted with a new pid", async () => {
  await using bench = new Bench();
  bench.start({});
  await eventually(() => bench.state().children[0]?.state === "running");
  const first = bench.state().children[0]?.pid ?? 0;
  process.kill(first, "SIGKILL");
  await eventually(() => (bench.state().children[0]?.pid ?? first) !== first);
  expect(bench.state().children[0]).toMatchObject({ restarts: 1, lastExit: { code: null, signal: "SIGKILL" } });
});

test("a child waits for its start condition", async () => {
  await using bench = new Bench();
  const needed = join(bench.folder, "config");
  bench.start({ startsWhen: () => existsSync(needed) });
  expect(bench.state().children[0]).toMatchObject({ state: "waiting", restarts: 0 });
  writeFileSync(needed, "");
  await eventually(() => bench.state().children[0]?.state === "running");
});

test("stopping terminates all children, with SIGKILL those that ignore SIGTERM", async () => {
  await using bench = new Bench();
  bench.start({}, shell("trap '' TERM; echo deaf; while :; do sleep 1; done"), { stopSignal: "SIGKILL" });
  await eventually(
    () => bench.state().children.every(({ state }) => state === "running") && bench.lines.includes("child1: deaf"),
  );
  const pids = bench.state().children.map(({ pid }) => pid ?? 0);
  await bench.stop();
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow();
  expect(bench.state().children.map(({ state }) => state)).toEqual(["stopped", "stopped", "stopped"]);
});

test("a missing program is retried and does not stop the other children", async () => {
  await using bench = new Bench();
  bench.start({ command: ["/no/such/program"] }, {});
  await eventually(() => (bench.state().children[0]?.restarts ?? 0) >= 2);
  expect(bench.state().children[1]?.state).toBe("running");
});

test("a very long line is emitted in pieces", async () => {
  await using bench = new Bench();
  bench.start(shell("head -c 200000 /dev/zero | tr '\\0' x; sleep 60"));
  // Up to 64 KiB may still be buffered, depending on the sizes of the reads from the pipe.
  await eventually(() => bench.lines.join("").length > 130_000);
});
