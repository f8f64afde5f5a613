// Replays the corpus of every fuzz target without mutations: some inputs must be accepted, and none may be a finding.
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { corpusFiles } from "./driver.ts";
import { Executor, type Finding } from "./executor.ts";
import { Random } from "./random.ts";
import { loadTarget, TARGETS } from "./targets/index.ts";

const corpus = join(import.meta.dir, "corpus");

for (const name of TARGETS)
  test(`${name}: no input of the corpus is a finding, and some are accepted`, async () => {
    const findings: Omit<Finding, "input">[] = [];
    const executor = new Executor({
      target: await loadTarget(name),
      corpus: corpusFiles(join(corpus, name)).map((path) => new Uint8Array(readFileSync(path))),
      random: new Random(1),
      begin: () => {},
      end: () => {},
      onFinding: ({ kind, what }) => void findings.push({ kind, what }),
    });
    await executor.replay();
    expect(findings).toEqual([]);
    expect(executor.accepted).toBeGreaterThan(0);
  });

test("every folder of the corpus belongs to a target", () => {
  expect(readdirSync(corpus).filter((name) => !TARGETS.includes(name))).toEqual([]);
});
