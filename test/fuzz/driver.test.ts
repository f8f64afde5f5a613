// Checks with faulty parsers that the fuzz driver finds each kind of fault, stores the input, and replays it.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { corpusFiles, runTarget, saveFinding, type TargetResult } from "./driver.ts";
import { textOf } from "./target.ts";

let corpus: string;
beforeAll(() => {
  corpus = mkdtempSync(join(tmpdir(), "fuzz-corpus-"));
  writeFileSync(join(corpus, "number"), "17\n");
});
afterAll(() => rmSync(corpus, { recursive: true }));

const fuzz = (target: string, seconds = 0.5): Promise<TargetResult> => runTarget({ target, seconds, seed: 1, corpus });

test("a parser without a fault has no finding", async () => {
  const { findings, executions, accepted } = await fuzz("correct", 0.3);
  expect(findings).toEqual([]);
  expect(executions).toBeGreaterThan(100);
  expect(accepted).toBeGreaterThan(0);
});

const cases = [
  { target: "wrong-error", kind: "wrong error", what: /TypeError: an empty line/ },
  { target: "broken-round-trip", kind: "broken invariant", what: /round trip: "[^"]+" instead of "\d+"/ },
  { target: "hang", kind: "hang", what: /more than 1000 ms of processor time/ },
  { target: "late-error", kind: "wrong error", what: /not caught: RangeError: late/ },
  { target: "crash", kind: "crash", what: /SIGKILL/ },
  { target: "memory", kind: "memory", what: /grew by \d+ MB/ },
] as const;
for (const { target, kind, what } of cases)
  test(`finds the fault of the parser "${target}"`, async () => {
    const [finding] = (await fuzz(target)).findings;
    expect(finding?.kind).toBe(kind);
    expect(finding?.what).toMatch(what);
    if (kind === "hang" || kind === "crash" || kind === "memory") expect(finding?.input[0]).toBe(255);
  });

test("the same seed finds the same input, which is minimal", async () => {
  const inputs = await Promise.all([fuzz("wrong-error"), fuzz("wrong-error")]);
  const [first, second] = inputs.map(({ findings }) => textOf(findings[0]?.input ?? new Uint8Array(0)));
  expect(first).toBe("\n\n");
  expect(second).toBe("\n\n");
});

test("a stored finding is replayed before the other inputs", async () => {
  const folder = mkdtempSync(join(tmpdir(), "fuzz-kept-"));
  try {
    writeFileSync(join(folder, "a-number"), "17\n");
    const kept = saveFinding(folder, { kind: "wrong error", what: "", input: new TextEncoder().encode("\n\n") });
    expect(corpusFiles(folder)).toEqual([kept, join(folder, "a-number")]);
    const run = { target: "wrong-error", seconds: 0, seed: 1, corpus: folder };
    expect((await runTarget(run)).findings.map(({ kind }) => kind)).toEqual(["wrong error"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
