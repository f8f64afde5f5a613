// Finds tests that sleep for a fixed time. A test waits for a condition (`eventually`, `pollUntil`) or checks that a condition holds for
// some time (`staysTrue`), with src/lib/testing/eventually.ts. Sleeps that were there before this check are in known-sleeps.txt, by
// the text of their line, so that a file may be renamed; the list must only get shorter (`bun scripts/sleeps.ts --shorten`).
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

interface Sleep {
  readonly place: string;
  /** The line without its comment. */
  readonly text: string;
}

const SLEEP =
  /\bBun\.sleep(?:Sync)?\(|(?<![\w.])delay\(|setTimeout\(\s*(?:resolve|done|\(\) => resolve)|\bAtomics\.wait\(|timers\/promises/;
/** The helpers themselves, the test of `delay`, and this check. */
const EXCEPT = /^src\/lib\/(?:testing\/|retry\.test\.ts)|^scripts\/sleeps/;
const LIST = "scripts/known-sleeps.txt";

/** Returns one sentence for each sleep that is not in the list. */
export function findNewSleeps(root: string): readonly string[] {
  const known = readList(root);
  const faults: string[] = [];
  for (const [text, places] of byText(root)) {
    const allowed = known.get(text) ?? 0;
    if (places.length > allowed)
      faults.push(
        `${places.join(", ")}: ${text}: ${allowed === 0 ? "" : `${allowed} of these are known; `}wait for a condition instead (src/lib/testing/eventually.ts)`,
      );
  }
  return faults;
}

export function findSleeps(path: string, source: string): readonly Sleep[] {
  return source.split("\n").flatMap((line, i) => {
    const text = line.replace(/\s*\/\/.*$/, "").trim();
    return SLEEP.test(text) && !text.startsWith("*") ? [{ place: `${path}:${i + 1}`, text }] : [];
  });
}

const isTest = (path: string): boolean =>
  path.endsWith(".ts") && (path.startsWith("test/") || path.endsWith(".test.ts") || path.includes("/testing/"));

function byText(root: string): ReadonlyMap<string, readonly string[]> {
  const places = new Map<string, string[]>();
  for (const folder of ["src", "test", "scripts", "bench"])
    for (const name of readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).toSorted()) {
      const path = join(folder, name);
      if (!isTest(path) || EXCEPT.test(path)) continue;
      for (const { place, text } of findSleeps(path, readFileSync(join(root, path), "utf8")))
        places.set(text, [...(places.get(text) ?? []), place]);
    }
  return places;
}

/** Lines `COUNT TEXT`. */
function readList(root: string): ReadonlyMap<string, number> {
  const lines = readFileSync(join(root, LIST), "utf8").trim().split("\n");
  return new Map(lines.map((line) => [line.slice(line.indexOf(" ") + 1), Number(line.slice(0, line.indexOf(" ")))]));
}

if (import.meta.main) {
  const root = join(import.meta.dir, "..");
  const known = readList(root);
  const lines = [...byText(root)]
    .map(([text, places]): [string, number] => [text, Math.min(places.length, known.get(text) ?? 0)])
    .filter(([, count]) => count > 0)
    .map(([text, count]) => `${count} ${text}`);
  writeFileSync(join(root, LIST), `${lines.toSorted().join("\n")}\n`);
  console.log(`sleeps: ${lines.length} lines in ${LIST}`);
}
