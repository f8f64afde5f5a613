import { expect, test } from "bun:test";
import { allInOrder } from "./all-in-order.ts";

test("allInOrder returns all results, or throws the error that is first in the list", async () => {
  expect(await allInOrder([Promise.resolve(1), Promise.resolve("two")])).toEqual([1, "two"]);
  const late = Promise.withResolvers<number>();
  let isOver = false;
  const all = allInOrder([late.promise, Promise.reject(new Error("second"))]).finally(() => (isOver = true));
  await Bun.sleep(1);
  expect(isOver).toBeFalse();
  late.reject(new Error("first"));
  await expect(all).rejects.toThrow("first");
});

test("allInOrder does not wait for operations after the one that fails", async () => {
  const never = new Promise<void>(() => {});
  await expect(allInOrder([Promise.reject(new Error("first")), never])).rejects.toThrow("first");
});
