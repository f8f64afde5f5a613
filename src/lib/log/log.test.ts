import { expect, test } from "bun:test";
import { describeError, formatText } from "./log.ts";

test("describeError: each cause is included once", () => {
  const cause = new Error("disk full");
  expect(describeError(new Error("cannot write x", { cause }))).toBe("cannot write x: disk full");
  expect(describeError(new Error("cannot write x: disk full", { cause }))).toBe("cannot write x: disk full");
  expect(describeError("plain words")).toBe("plain words");
});

test("a value of any length takes at most 4,000 characters of a line", () => {
  const long = "x".repeat(256 * 1024);
  for (const value of [long, new Error(long), [long]]) {
    const line = formatText({ time: new Date(0), level: "warn", message: "m", fields: { value } });
    expect(line).toContain("characters)");
    expect(line.length).toBeLessThan(4100);
  }
});
