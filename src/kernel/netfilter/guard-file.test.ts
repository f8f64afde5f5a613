import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeGuardFileAtStart, readGuardFile, writeGuardFileAfterRules, withdrawGuard } from "./guard-file.ts";

class Folder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "guard-file-"));
  readonly nodename = join(this.path, "nodename");
  readonly guard = join(this.path, "guard");
  /** Writes the nodename file, as an agent does when it starts. */
  startAgent(secondsAgo = 0): void {
    writeFileSync(this.nodename, "n1");
    this.#date(this.nodename, secondsAgo);
  }
  dateGuard(secondsAgo: number): void {
    this.#date(this.guard, secondsAgo);
  }
  #date(path: string, secondsAgo: number): void {
    const time = Date.now() / 1000 - secondsAgo;
    utimesSync(path, time, time);
  }
  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true });
  }
}

const announced = { kind: "valid", interfacePrefixes: ["cali"], hasRulesOfOtherAgent: false } as const;

test("a guard file is valid even before its agent writes the nodename file", () => {
  using folder = new Folder();
  expect(readGuardFile(folder.nodename)).toEqual({ kind: "absent" });
  writeGuardFileAtStart(folder.nodename, { hasRulesOfOtherAgent: false });
  expect(readGuardFile(folder.nodename)).toEqual(announced);
  folder.startAgent();
  expect(readGuardFile(folder.nodename)).toEqual(announced);
  writeGuardFileAfterRules(folder.nodename, ["cali", "tap"]);
  expect(readGuardFile(folder.nodename)).toEqual({ ...announced, interfacePrefixes: ["cali", "tap"] });
  writeGuardFileAtStart(folder.nodename, { hasRulesOfOtherAgent: false }); // the next start
  expect(readGuardFile(folder.nodename)).toEqual({ ...announced, interfacePrefixes: ["cali", "tap"] });
});

test("a guard file is stale after an agent that does not write it has started", () => {
  using folder = new Folder();
  writeGuardFileAtStart(folder.nodename, { hasRulesOfOtherAgent: false });
  folder.dateGuard(60);
  folder.startAgent(61);
  expect(readGuardFile(folder.nodename)).toEqual(announced);
  folder.startAgent(59);
  expect(readGuardFile(folder.nodename)).toEqual({ kind: "stale" });
});

test("a clock that was set back does not make the file of a running agent stale", () => {
  using folder = new Folder();
  folder.startAgent(-3600);
  writeGuardFileAfterRules(folder.nodename, ["cali"]);
  expect(readGuardFile(folder.nodename)).toEqual(announced);
});

test("rules of another agent count until Felix has written its own, and in this boot only", () => {
  using folder = new Folder();
  writeGuardFileAtStart(folder.nodename, { hasRulesOfOtherAgent: true });
  expect(readGuardFile(folder.nodename)).toEqual({ ...announced, hasRulesOfOtherAgent: true });
  const otherBoot = { ...JSON.parse(readFileSync(folder.guard, "utf8")), otherAgentInBoot: "another boot" };
  writeFileSync(folder.guard, JSON.stringify(otherBoot));
  expect(readGuardFile(folder.nodename)).toEqual(announced);
  writeGuardFileAtStart(folder.nodename, { hasRulesOfOtherAgent: true });
  writeGuardFileAfterRules(folder.nodename, ["cali"]);
  expect(readGuardFile(folder.nodename)).toEqual(announced);
});

test("a guard file that cannot be parsed is stale", () => {
  using folder = new Folder();
  for (const text of [
    "",
    "{",
    "null",
    "{}",
    '{"interfacePrefixes":[]}',
    '{"interfacePrefixes":[""]}',
    '{"interfacePrefixes":"cali"}',
  ]) {
    writeFileSync(folder.guard, text);
    expect({ text, ...readGuardFile(folder.nodename) }).toEqual({ text, kind: "stale" });
  }
  withdrawGuard(folder.nodename);
  expect(readGuardFile(folder.nodename)).toEqual({ kind: "absent" });
});
