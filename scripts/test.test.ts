// Runs the test runner on small test projects.
import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** A test that fails in its first run and passes in the second. */
const FAILS_ONCE = `
import { existsSync, writeFileSync } from "node:fs";
import { expect, test } from "bun:test";
const mark = \`\${import.meta.path}.ran\`;
const isSecond = existsSync(mark);
writeFileSync(mark, "");
test("fails once", () => expect(isSecond ? "the second run" : "the first run").toBe("the second run"));
test("always passes", () => {});
`;
const FAST_CHECK = Bun.resolveSync("fast-check", import.meta.dir);
const FAILING_PROPERTY = `
import { test } from "bun:test";
import fc from ${JSON.stringify(FAST_CHECK)};
test("numbers are small", () => fc.assert(fc.property(fc.nat(), (n) => n < 10)));
`;

async function runStage(
  stage: string,
  files: Readonly<Record<string, string>>,
): Promise<{ readonly code: number; readonly lines: readonly string[] }> {
  const root = mkdtempSync(join(tmpdir(), "runner-"));
  try {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, name)), { recursive: true });
      writeFileSync(join(root, name), text);
    }
    const command = [process.execPath, join(import.meta.dir, "test.ts"), `--root=${root}`, stage];
    const child = Bun.spawn(command, { stdout: "pipe", stderr: "pipe" });
    const output = await new Response(child.stdout).text();
    return { code: await child.exited, lines: output.trimEnd().split("\n") };
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("a unit test that fails the first time and would pass the second fails the run", async () => {
  const { code, lines } = await runStage("unit", { "src/a.test.ts": FAILS_ONCE });
  expect(lines.slice(-2)).toEqual(["0 flaky", "1 passed, 1 failed, 0 skipped"]);
  expect(code).toBe(1);
});

test("a functional test that fails the first time and passes the second is reported as flaky", async () => {
  const { code, lines } = await runStage("functional", {
    "test/functional/a.test.ts": FAILS_ONCE,
    "test/functional/b.test.ts": FAILS_ONCE.replace("fails once", "fails once, too"),
  });
  expect(lines.slice(-2)).toEqual(["2 flaky", "4 passed, 0 failed, 0 skipped"]);
  const report = lines.slice(lines.indexOf("flaky: test/functional/a.test.ts: fails once"), -2);
  expect(report).toContain('    Received: "the first run"');
  expect(report).toContain("flaky: test/functional/b.test.ts: fails once, too");
  expect(code).toBe(0);
});

test("a run with more than three flaky tests fails", async () => {
  const files = Object.fromEntries([1, 2, 3, 4].map((n) => [`test/functional/${n}.test.ts`, FAILS_ONCE]));
  const { code, lines } = await runStage("functional", files);
  expect(lines.slice(-2)).toEqual(["4 flaky (the run fails: more than 3)", "8 passed, 0 failed, 0 skipped"]);
  expect(code).toBe(1);
});

test("a functional test file that never loads fails the run, also beside a flaky test", async () => {
  const { code, lines } = await runStage("functional", {
    "test/functional/a.test.ts": FAILS_ONCE,
    "test/functional/b.test.ts": `import "./missing.ts";`,
  });
  expect(lines.slice(-2)).toEqual(["1 flaky", "2 passed, 1 failed, 0 skipped"]);
  expect(code).toBe(1);
});

test("a failing property prints its seed, path and counterexample", async () => {
  const { code, lines } = await runStage("unit", { "src/a.test.ts": FAILING_PROPERTY });
  const output = lines.join("\n");
  expect(output).toMatch(/seed: -?\d+, path: "[\d:]+"/);
  expect(output).toContain("Counterexample: [10]");
  expect(code).toBe(1);
});

test("make properties multiplies the runs of every property and prints its seed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "properties-"));
  try {
    const file = join(folder, "a.test.ts");
    const count = (name: string, parameters: string) => `
      test("${name}", () => {
        let runs = 0;
        fc.assert(fc.property(fc.nat(), () => void runs++), ${parameters});
        console.error("${name}: " + runs);
      });`;
    const head = `import { test } from "bun:test";\nimport fc from ${JSON.stringify(FAST_CHECK)};\n`;
    writeFileSync(file, head + count("default", "{}") + count("own", "{ numRuns: 7, seed: 42 }"));
    const command = [process.execPath, "test", `--preload=${join(import.meta.dir, "property-factor.ts")}`, file];
    const env = { ...process.env, CALICO_PROPERTY_FACTOR: "3" };
    const child = Bun.spawn(command, { env, stdout: "pipe", stderr: "pipe" });
    const output = await new Response(child.stderr).text();
    expect(await child.exited).toBe(0);
    expect(output).toMatch(/property: seed -?\d+, 300 runs\ndefault: 300\n/);
    expect(output).toMatch(/property: seed 42, 21 runs\nown: 21\n/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
