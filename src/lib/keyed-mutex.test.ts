import { expect, test } from "bun:test";
import { KeyedMutex } from "./keyed-mutex.ts";

test("actions with one name run sequentially, even after one fails, and other names do not wait", async () => {
  const mutex = new KeyedMutex();
  const seen: string[] = [];
  const gate = Promise.withResolvers<void>();
  const action = (text: string) => async () => void seen.push(text);
  const first = mutex.run("a", undefined, async () => {
    seen.push("first starts");
    await gate.promise;
    seen.push("first fails");
    throw new Error("failed");
  });
  const second = mutex.run("a", undefined, action("second"));
  const third = mutex.run("a", undefined, action("third"));
  await mutex.run("b", undefined, action("other name"));
  gate.resolve();
  await expect(first).rejects.toThrow("failed");
  await Promise.all([second, third]);
  expect(seen).toEqual(["first starts", "other name", "first fails", "second", "third"]);
});

test("an aborted wait rejects with the signal's reason, and the next action still waits for the running one", async () => {
  const mutex = new KeyedMutex();
  const gate = Promise.withResolvers<void>();
  const aborter = new AbortController();
  const seen: string[] = [];
  const first = mutex.run("a", undefined, async () => {
    await gate.promise;
    seen.push("first");
  });
  const second = mutex.run("a", aborter.signal, async () => void seen.push("second"));
  const third = mutex.run("a", undefined, async () => void seen.push("third"));
  aborter.abort(new Error("too late"));
  await expect(second).rejects.toThrow("too late");
  expect(seen).toEqual([]);
  gate.resolve();
  await Promise.all([first, third]);
  expect(seen).toEqual(["first", "third"]);
});
