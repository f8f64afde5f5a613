// Computes the result of a test run: parses the JUnit reports of `bun test`, merges the first run of a file with its
// repetition, and returns the counts, the flaky tests and the exit code. No I/O.

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}
export interface TestResult {
  /** Relative to the folder in which the tests ran, such as `test/functional/lab/lab.test.ts`. */
  readonly file: string;
  /** `group > test`; a second test of the same name in the file has the suffix ` (2)`. */
  readonly name: string;
  readonly outcome: "passed" | "failed" | "skipped";
  /** Error message and stack of a failed test. */
  readonly failure?: string;
}
/** A test that passed in one of its two runs and failed in the other. */
export interface FlakyTest {
  readonly file: string;
  readonly name: string;
  readonly failure: string;
}

/** A run with more flaky tests than this fails. */
export const MAX_FLAKY = 3;

/** The name that bun gives to a failed `beforeAll` or `afterAll`; a hook that succeeds is not in the report. */
const FAILED_HOOK = "(unnamed)";
/** The name for a file that the report does not contain. */
const WHOLE_FILE = "(file)";

/** Returns the tests of a JUnit report as `bun test` writes it. */
export function parseReport(xml: string): TestResult[] {
  const results: TestResult[] = [];
  const groups: string[] = []; // names of the open test suites; the outermost is the file
  const timesSeen = new Map<string, number>();
  for (const [, close, element, attributes = "", selfClosing] of xml.matchAll(
    /<(\/?)(testsuite|testcase|failure|skipped)\b([^>]*?)(\/?)>/g,
  )) {
    const read = (name: string) => unescapeXml(new RegExp(`\\b${name}="([^"]*)"`).exec(attributes)?.[1] ?? "");
    const last = results.at(-1);
    if (close === "/") {
      if (element === "testsuite") groups.pop();
    } else if (element === "testsuite") {
      if (selfClosing !== "/") groups.push(read("name"));
    } else if (element === "testcase") {
      const file = read("file");
      const base = [...groups.slice(1), read("name")].join(" > ");
      const times = (timesSeen.get(`${file} ${base}`) ?? 0) + 1;
      timesSeen.set(`${file} ${base}`, times);
      results.push({ file, name: times === 1 ? base : `${base} (${times})`, outcome: "passed" });
    } else if (last !== undefined) {
      const failure = element === "failure" ? { failure: read("message") || read("type") } : {};
      results[results.length - 1] = { ...last, outcome: element === "failure" ? "failed" : "skipped", ...failure };
    }
  }
  return results;
}

/** Adds a failure for each file without a result: it did not load, or the run ended before it. */
export function withMissingFiles(results: readonly TestResult[], files: readonly string[]): TestResult[] {
  const reported = new Set(results.map(({ file }) => file));
  const failure = "the report has no test of this file: it did not load, has no tests, or the run was cut short";
  return [
    ...results,
    ...files
      .filter((file) => !reported.has(file))
      .map((file) => ({ file, name: WHOLE_FILE, outcome: "failed", failure }) as const),
  ];
}

/**
 * True if a failed file may be run once more. A recording produces the same result each time. A property or a test with
 * seeded random numbers would only be tried with other inputs, so that a repetition hides a real failure.
 */
export function isRepeatable(file: string, source: string): boolean {
  return !/recordings|differential/.test(file) && !/from "(fast-check|.*\/support\/random-numbers\.ts)"/.test(source);
}

export function failedFiles(results: readonly TestResult[]): string[] {
  return [...new Set(results.filter(({ outcome }) => outcome === "failed").map(({ file }) => file))];
}

/**
 * Merges the results of some files with those of their repetition. A test that failed once and passed once counts as
 * passed and is flaky. A failed hook or a missing file is flaky if the repetition has results without this failure.
 */
export function mergeRepetition(
  first: readonly TestResult[],
  second: readonly TestResult[],
): { readonly results: readonly TestResult[]; readonly flaky: readonly FlakyTest[] } {
  const key = ({ file, name }: TestResult) => `${file} ${name}`;
  const secondByKey = new Map(second.map((result) => [key(result), result]));
  const filesOfSecond = new Set(second.filter(({ name }) => name !== WHOLE_FILE).map(({ file }) => file));
  const firstKeys = new Set(first.map(key));
  const results: TestResult[] = [];
  const flaky: FlakyTest[] = [];
  for (const before of first) {
    const after = secondByKey.get(key(before));
    const hasFailedOnce = before.outcome === "failed" || after?.outcome === "failed";
    const hasPassedOnce = before.outcome === "passed" || after?.outcome === "passed";
    const isHook = before.name === WHOLE_FILE || before.name.endsWith(FAILED_HOOK);
    const isHookGone = isHook && after === undefined && filesOfSecond.has(before.file);
    if (hasFailedOnce && (hasPassedOnce || isHookGone))
      flaky.push({ file: before.file, name: before.name, failure: before.failure ?? after?.failure ?? "" });
    if (isHookGone) continue; // its tests are in the second run's results
    results.push(hasFailedOnce && hasPassedOnce ? { file: before.file, name: before.name, outcome: "passed" } : before);
  }
  results.push(...second.filter((result) => !firstKeys.has(key(result))));
  return { results, flaky };
}

export function countResults(results: readonly TestResult[]): Counts {
  const count = (outcome: TestResult["outcome"]) => results.filter((result) => result.outcome === outcome).length;
  return { passed: count("passed"), failed: count("failed"), skipped: count("skipped") };
}

/** Returns the counts from the last line of the form that ends a test run, or undefined if there is none. */
export function parseClosingLine(output: string): Counts | undefined {
  const line = [...output.matchAll(/^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/gm)].at(-1);
  if (line === undefined) return undefined;
  return { passed: Number(line[1]), failed: Number(line[2]), skipped: Number(line[3] ?? 0) };
}

export function closingLine({ passed, failed, skipped }: Counts): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** Returns the end of the output: every flaky test with its failure, their number, and the closing line. */
export function renderSummary(counts: Counts, flaky: readonly FlakyTest[]): string {
  const lines = flaky.flatMap(({ file, name, failure }) => [
    `flaky: ${file}: ${name}`,
    ...failure
      .trimEnd()
      .split("\n")
      .map((line) => `    ${line}`.trimEnd()),
  ]);
  const limit = flaky.length > MAX_FLAKY ? ` (the run fails: more than ${MAX_FLAKY})` : "";
  return [...lines, `${flaky.length} flaky${limit}`, closingLine(counts)].join("\n");
}

export function exitCode(counts: Counts, flaky: readonly FlakyTest[]): 0 | 1 {
  return counts.failed === 0 && counts.passed > 0 && flaky.length <= MAX_FLAKY ? 0 : 1;
}

function unescapeXml(text: string): string {
  const entities: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
  return text.replace(/&(?:#(\d+)|#x([0-9a-f]+)|(\w+));/gi, (whole, decimal?: string, hex?: string, name?: string) => {
    if (decimal !== undefined) return String.fromCodePoint(Number(decimal));
    if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16));
    return entities[name ?? ""] ?? whole;
  });
}
