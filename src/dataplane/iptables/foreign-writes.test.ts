import { expect, test } from "bun:test";
import { ForeignWrites } from "./foreign-writes.ts";

function open(start = 5) {
  const kernel = { generation: start };
  const commit = () => {
    kernel.generation = (kernel.generation + 1) >>> 0 || 1;
  };
  return { foreign: new ForeignWrites(() => kernel.generation), commit };
}
const yieldToEventLoop = () => new Promise((resolve) => setImmediate(resolve));

test("transactions of calico-ts do not change the epoch, even if two run at once or the generation wraps around", async () => {
  const { foreign, commit } = open(0xffffffff);
  const before = foreign.epoch();
  const write = async () => {
    await yieldToEventLoop();
    commit();
  };
  await Promise.all([foreign.during(write), foreign.during(write)]);
  commit();
  foreign.countOwnWrite();
  expect(foreign.epoch()).toBe(before);
});

test("a transaction of another program changes the epoch, even during a write of calico-ts", async () => {
  const { foreign, commit } = open();
  const first = foreign.epoch();
  commit();
  const second = foreign.epoch();
  expect(second).not.toBe(first);
  await foreign.during(async () => {
    commit();
    await yieldToEventLoop();
    commit();
  });
  expect(foreign.epoch()).not.toBe(second);
});

test("a write that failed, or made no transaction, changes the epoch", async () => {
  const { foreign } = open();
  const first = foreign.epoch();
  await expect(foreign.during(() => Promise.reject(new Error("refused")))).rejects.toThrow("refused");
  await yieldToEventLoop();
  const second = foreign.epoch();
  expect(second).not.toBe(first);
  await foreign.during(() => Promise.resolve());
  expect(foreign.epoch()).not.toBe(second);
});
