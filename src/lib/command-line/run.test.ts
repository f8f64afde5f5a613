import { expect, test } from "bun:test";
import { runCaptured } from "./testing/run-captured.ts";
import { SAMPLE } from "./testing/sample-table.ts";

const run = (line: string, columns?: number) =>
  runCaptured(
    SAMPLE,
    line.split(" ").filter((word) => word !== ""),
    { columns: () => columns },
  );

test("a command runs and gives the exit code", async () =>
  expect(await run("copy a")).toEqual({ code: 0, out: "", err: "" }));

test("an unknown word gets three lines: the word, what may be meant, and how to get help", async () => {
  expect(await run("cpoy a")).toEqual({
    code: 2,
    out: "",
    err: `sample: unknown command "cpoy"\nDid you mean copy?\nRun "sample --help" for the list of commands.\n`,
  });
  expect(await run("copy a --recrusive")).toEqual({
    code: 2,
    out: "",
    err: `sample copy: unknown flag --recrusive\nDid you mean --recursive?\nRun "sample copy --help" for its arguments and flags.\n`,
  });
});

test("without a similar word there is no guess", async () =>
  expect((await run("copy a --xyz")).err).toBe(
    `sample copy: unknown flag --xyz\nRun "sample copy --help" for its arguments and flags.\n`,
  ));

test("other wrong usage gets the usage lines", async () =>
  expect(await run("exec n1")).toEqual({
    code: 2,
    out: "",
    err: `sample exec: COMMAND is missing\nUsage:\n  sample exec HOST -- COMMAND...\nRun "sample exec --help" for its arguments and flags.\n`,
  }));

test("help goes to standard output, as wide as the terminal", async () => {
  const { code, out, err } = await run("help copy", 60);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(Math.max(...out.split("\n").map((line) => line.length))).toBeLessThanOrEqual(60);
});
