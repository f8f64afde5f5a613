import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  countResults,
  exitCode,
  type FlakyTest,
  failedFiles,
  isRepeatable,
  MAX_FLAKY,
  mergeRepetition,
  parseClosingLine,
  parseReport,
  renderSummary,
  type TestResult,
  withMissingFiles,
} from "./test-results.ts";

const FILE = "test/functional/a.test.ts";
const result = (name: string, outcome: TestResult["outcome"], failure?: string): TestResult => ({
  file: FILE,
  name,
  outcome,
  failure,
});

test("parseReport: groups, escaped text, skipped tests and tests of the same name", () => {
  const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="6" assertions="32" failures="2" skipped="1" time="0.14">
  <testsuite name="${FILE}" file="${FILE}" tests="6" failures="2" skipped="1" time="0.01" hostname="vm">
    <testcase name="x &amp; &lt;y&gt;" classname="" time="0.0001" file="${FILE}" line="3" assertions="1">
      <failure type="AssertionError" message="Expected: &quot;2&quot;&#10;Received: 1">AssertionError: …</failure>
    </testcase>
    <testsuite name="outer" file="${FILE}" line="4" tests="4" failures="1" skipped="1" time="0" hostname="vm">
      <testsuite name="inner" file="${FILE}" line="4" tests="3" failures="1" skipped="1" time="0" hostname="vm">
        <testcase name="slow" classname="inner &gt; outer" time="0.05" file="${FILE}" line="6" assertions="0">
          <failure type="TimeoutError" message="test timed out" />
        </testcase>
        <testcase name="later" classname="inner &gt; outer" time="0" file="${FILE}" line="4" assertions="0">
          <skipped />
        </testcase>
        <testcase name="fine" classname="inner &gt; outer" time="0." file="${FILE}" line="5" assertions="0" />
      </testsuite>
      <testcase name="fine" classname="outer" time="0" file="${FILE}" line="5" assertions="0" />
    </testsuite>
    <testcase name="again" classname="" time="0" file="${FILE}" line="5" assertions="0" />
    <testcase name="again" classname="" time="0" file="${FILE}" line="5" assertions="0" />
  </testsuite>
</testsuites>`;
  expect(parseReport(report)).toEqual([
    result("x & <y>", "failed", 'Expected: "2"\nReceived: 1'),
    result("outer > inner > slow", "failed", "test timed out"),
    result("outer > inner > later", "skipped"),
    result("outer > inner > fine", "passed"),
    result("outer > fine", "passed"),
    result("again", "passed"),
    result("again (2)", "passed"),
  ]);
});

test("withMissingFiles: a file without results counts as one failure", () => {
  const results = withMissingFiles([result("one", "passed")], [FILE, "src/broken.test.ts"]);
  expect(failedFiles(results)).toEqual(["src/broken.test.ts"]);
  expect(countResults(results)).toEqual({ passed: 1, failed: 1, skipped: 0 });
});

const repetitions: readonly {
  name: string;
  first: readonly TestResult[];
  second: readonly TestResult[];
  counts: [passed: number, failed: number, skipped: number];
  flaky: readonly string[];
}[] = [
  {
    name: "a test that passes the second time is flaky and counts as passed",
    first: [result("one", "failed", "boom"), result("two", "passed"), result("three", "skipped")],
    second: [result("one", "passed"), result("two", "passed"), result("three", "skipped")],
    counts: [2, 0, 1],
    flaky: ["one: boom"],
  },
  {
    name: "a test that fails twice has failed",
    first: [result("one", "failed", "boom"), result("two", "passed")],
    second: [result("one", "failed", "boom again"), result("two", "passed")],
    counts: [1, 1, 0],
    flaky: [],
  },
  {
    name: "a test that passes first and fails in the repetition is flaky too",
    first: [result("one", "failed", "boom"), result("two", "passed")],
    second: [result("one", "passed"), result("two", "failed", "bang")],
    counts: [2, 0, 0],
    flaky: ["one: boom", "two: bang"],
  },
  {
    name: "a test that is skipped the second time is still failed",
    first: [result("one", "failed", "boom")],
    second: [result("one", "skipped")],
    counts: [0, 1, 0],
    flaky: [],
  },
  {
    name: "a test that the repetition does not contain is still failed",
    first: [result("one", "failed", "boom")],
    second: [result("two", "passed")],
    counts: [1, 1, 0],
    flaky: [],
  },
  {
    name: "a hook that fails once is flaky, and its tests count",
    first: [result("(unnamed)", "failed", "no server")],
    second: [result("one", "passed"), result("two", "failed", "boom")],
    counts: [1, 1, 0],
    flaky: ["(unnamed): no server"],
  },
  {
    name: "a hook that fails twice has failed",
    first: [result("(unnamed)", "failed", "no server")],
    second: [result("(unnamed)", "failed", "no server")],
    counts: [0, 1, 0],
    flaky: [],
  },
  {
    name: "a file that does not load in either run has failed",
    first: withMissingFiles([], [FILE]),
    second: withMissingFiles([], [FILE]),
    counts: [0, 1, 0],
    flaky: [],
  },
];
for (const { name, first, second, counts, flaky } of repetitions)
  test(`mergeRepetition: ${name}`, () => {
    const merged = mergeRepetition(first, second);
    const { passed, failed, skipped } = countResults(merged.results);
    expect([passed, failed, skipped]).toEqual(counts);
    expect(merged.flaky.map((one) => `${one.name}: ${one.failure}`)).toEqual([...flaky]);
  });

const flakyTests = (count: number): FlakyTest[] =>
  Array.from({ length: count }, (_, i) => ({ file: FILE, name: `test ${i}`, failure: "boom\n  at a.ts:1" }));

test("renderSummary: flaky tests with their failures, their number, then the closing line alone", () => {
  const counts = { passed: 5, failed: 0, skipped: 1 };
  expect(renderSummary(counts, flakyTests(1)).split("\n")).toEqual([
    `flaky: ${FILE}: test 0`,
    "    boom",
    "      at a.ts:1",
    "1 flaky",
    "5 passed, 0 failed, 1 skipped",
  ]);
  expect(renderSummary(counts, [])).toBe("0 flaky\n5 passed, 0 failed, 1 skipped");
  expect(renderSummary(counts, flakyTests(4)).split("\n").at(-2)).toBe("4 flaky (the run fails: more than 3)");
});

test("exitCode: failed tests, too many flaky tests and a run without tests fail", () => {
  const passed = { passed: 5, failed: 0, skipped: 1 };
  expect(exitCode(passed, [])).toBe(0);
  expect(exitCode(passed, flakyTests(MAX_FLAKY))).toBe(0);
  expect(exitCode(passed, flakyTests(MAX_FLAKY + 1))).toBe(1);
  expect(exitCode({ ...passed, failed: 1 }, [])).toBe(1);
  expect(exitCode({ passed: 0, failed: 0, skipped: 3 }, [])).toBe(1);
});

test("parseClosingLine: the last plain line counts", () => {
  expect(parseClosingLine("1 passed, 2 failed\nfelix: 10 passed, 0 failed, 3 skipped\n")).toEqual({
    passed: 10,
    failed: 0,
    skipped: 3,
  });
  expect(parseClosingLine("there were 1 passed, 0 failed of them\n")).toBeUndefined();
});

const KILLS = "test/functional/ipam/kills.test.ts";
for (const { file, source, want } of [
  { file: "test/functional/lab/lab.test.ts", source: 'import { expect } from "bun:test";', want: true },
  { file: "test/kubernetes/recordings-datamodel.test.ts", source: "", want: false },
  { file: "test/functional/dataplane/differential.test.ts", source: "", want: false },
  { file: "test/functional/typha/reconnect.test.ts", source: 'import fc from "fast-check";', want: false },
  { file: KILLS, source: readFileSync(join(import.meta.dir, "..", KILLS), "utf8"), want: false },
])
  test(`a failure in ${file} ${want ? "is" : "is not"} repeated`, () => expect(isRepeatable(file, source)).toBe(want));
