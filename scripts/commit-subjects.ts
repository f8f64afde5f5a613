// Checks the subject lines of commits: `part: imperative verb …`, at most 72 characters.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

/** Commits up to this one are not checked. */
const LAST_UNCHECKED = "83e6248";
const MAX_LENGTH = 72;

/** `dataplane: keep …`, `lib, calicoctl: parse …` */
const PARTS_AND_REST = /^[a-z][a-z0-9-]*(?:, [a-z][a-z0-9-]*)*: (\S+)(?: .*)?$/;
/** Words that begin a statement, not a command. */
const NOT_VERBS = new Set([
  "a",
  "an",
  "the",
  "what",
  "who",
  "whoever",
  "no",
  "not",
  "it",
  "its",
  "this",
  "that",
  "one",
  "all",
]);
/** Verbs that end like a third person, a participle or a gerund. */
const IRREGULAR = new Set([
  "address",
  "bypass",
  "compress",
  "dismiss",
  "discuss",
  "pass",
  "process",
  "suppress",
  "bring",
  "embed",
  "feed",
  "need",
  "seed",
  "speed",
  "shed",
  "string",
]);

/** @returns what is wrong with the subject line; undefined if nothing is */
export function findSubjectFault(subject: string): string | undefined {
  if (subject.length > MAX_LENGTH) return `has ${subject.length} characters, more than ${MAX_LENGTH}`;
  const verb = PARTS_AND_REST.exec(subject)?.[1];
  if (verb === undefined) return "does not have the form `part: imperative verb …`";
  const isVerb = /^[a-z]+$/.test(verb) && !NOT_VERBS.has(verb) && (IRREGULAR.has(verb) || !/(?:s|ed|ing)$/.test(verb));
  return isVerb ? undefined : `has "${verb}" where an imperative verb is expected`;
}

/** One line for each wrong subject. Empty in a folder without git history, such as an unpacked archive. */
export function findSubjectFaults(root: string): string[] {
  if (!existsSync(join(root, ".git"))) return [];
  const git = (...args: string[]) => spawnSync("git", args, { cwd: root, encoding: "utf8" });
  if (git("cat-file", "-e", LAST_UNCHECKED).status !== 0) return []; // a shallow clone
  const { stdout } = git("log", "--no-merges", "--format=%h %s", `${LAST_UNCHECKED}..HEAD`);
  return stdout.split("\n").flatMap((line) => {
    const [, hash = "", subject = ""] = /^(\S+) (.*)$/.exec(line) ?? [];
    const fault = hash === "" ? undefined : findSubjectFault(subject);
    return fault === undefined ? [] : [`commit ${hash} "${subject}" ${fault}`];
  });
}
