import { expect, test } from "bun:test";
import { failure, restart, Shutdown, stopSignal } from "./shutdown.ts";

const times = { pauseMs: 30, limitMs: 200 };
const soon = () => Promise.resolve();

test("FC-010 a restart exits with 129 after a pause", async () => {
  const shutdown = new Shutdown(times);
  const started = performance.now();
  shutdown.request(restart("settings changed"));
  expect(shutdown.signal.aborted).toBe(true);
  expect(await shutdown.finish(soon, () => {})).toBe(129);
  expect(performance.now() - started).toBeGreaterThanOrEqual(25);
});

test("FC-013 SIGTERM exits with 1 immediately, SIGHUP with 129 like a change of settings", async () => {
  const shutdown = new Shutdown({ ...times, pauseMs: 5000 });
  shutdown.request(stopSignal("SIGTERM"));
  expect(await shutdown.finish(soon, () => {})).toBe(1);
  const hup = new Shutdown(times);
  hup.request(restart("received SIGHUP"));
  expect(await hup.finish(soon, () => {})).toBe(129);
});

test("FC-013 a signal during the pause exits with 1 immediately", async () => {
  const shutdown = new Shutdown({ ...times, pauseMs: 5000, limitMs: 10_000 });
  shutdown.request(restart("settings changed"));
  const code = shutdown.finish(soon, () => {});
  setTimeout(() => shutdown.request(stopSignal("SIGINT")), 10);
  expect(await code).toBe(1);
});

test("the first reason determines the exit code", async () => {
  const shutdown = new Shutdown(times);
  const logged: string[] = [];
  shutdown.request(failure("the driver stopped"));
  shutdown.request(restart("settings changed"));
  expect(await shutdown.finish(soon, (reason) => logged.push(reason.message))).toBe(1);
  expect(logged).toEqual(["the driver stopped"]);
});

test("FC-015 exits with 2 if a task does not end in time", async () => {
  const shutdown = new Shutdown({ pauseMs: 1, limitMs: 20 });
  shutdown.request(failure("x"));
  expect(
    await shutdown.finish(
      () => new Promise(() => {}),
      () => {},
    ),
  ).toBe(2);
});
