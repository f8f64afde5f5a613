import { expect, test } from "bun:test";
import { describeError } from "./log.ts";

test("an error is told with its causes, each of them once", () => {
  const cause = new Error("disk full");
  expect(describeError(new Error("cannot write x", { cause }))).toBe("cannot write x: disk full");
  expect(describeError(new Error("cannot write x: disk full", { cause }))).toBe("cannot write x: disk full");
  expect(describeError("plain words")).toBe("plain words");
});
