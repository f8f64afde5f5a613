import { expect, test } from "bun:test";
import { ForeignWrites } from "./foreign-writes.ts";

function open(start = 5) {
  const kernel = { generation: start };
  const commit = () => {
    kernel.generation = (kernel.generation + 1) >>> 0 || 1;
  };
  return { foreign: new ForeignWrites(() => kernel.generation), commit };
}
const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

test("our own transactions are nobody else's, also where two run at once and where the count begins again", async () => {
  const { foreign, commit } = open(0xffffffff);
  const before = foreign.epoch();
  const write = async () => {
    await nextTurn();
    commit();
  };
  await Promise.all([foreign.during(write), foreign.during(write)]);
  commit();
  foreign.wrote();
  expect(foreign.epoch()).toBe(before);
});

test("a foreign transaction is seen, also when it comes in the middle of ours", async () => {
  const { foreign, commit } = open();
  const first = foreign.epoch();
  commit();
  const second = foreign.epoch();
  expect(second).not.toBe(first);
  await foreign.during(async () => {
    commit();
    await nextTurn();
    commit();
  });
  expect(foreign.epoch()).not.toBe(second);
});

test("after a write that failed, or did nothing, nothing is sure", async () => {
  const { foreign } = open();
  const first = foreign.epoch();
  await expect(foreign.during(() => Promise.reject(new Error("refused")))).rejects.toThrow("refused");
  await nextTurn();
  const second = foreign.epoch();
  expect(second).not.toBe(first);
  await foreign.during(() => Promise.resolve());
  expect(foreign.epoch()).not.toBe(second);
});
