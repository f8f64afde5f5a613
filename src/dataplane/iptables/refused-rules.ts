// Which rules the kernel does not take, and what it takes instead. iptables writes a table as a whole and seldom says
// which of its rules was refused: they are tried, by halves, in a chain that no packet sees. Whether a rule fits may
// show only where packets come from, so where that finds nothing the chain is tried once more behind the kernel's
// chains that lead to the rule, by a jump that no packet takes.
//
// Only what is refused again, while another rule is taken right before and after it, is refused: a lock, or memory, that
// was short for a moment says nothing about a rule.
import { IptablesError, type IptablesTable } from "../../kernel/index.ts";
import type { RuleAt } from "../rules/aside.ts";
import type { RuleText } from "./lower.ts";

export interface Suspect extends RuleAt {
  readonly texts: readonly RuleText[];
  /** What may stand in for it, the nearest first. */
  readonly standIns: readonly (readonly RuleText[])[];
  /** The kernel's chains that lead to it. */
  readonly hooks: readonly string[];
  /** Rules that need the same of the kernel have the same. */
  readonly likeness: string;
}

export type RefusedAt<S extends Suspect> = S & { readonly level: number };

const PROBE = "cali-probe";
const HARMLESS = "--jump RETURN";
/** So many different ones are searched for one by one; then those like them are taken for refused. */
const MOST = 32;
const MANY = 8;

/** None when the rules are not the reason, or cannot be told apart, or the kernel's trouble passes. */
export async function findRefused<S extends Suspect>(
  layer: IptablesTable,
  suspects: readonly S[],
  restore: (text: string) => Promise<void>,
): Promise<RefusedAt<S>[]> {
  const probe = new Probe(layer, restore);
  try {
    if (!(await probe.takes([HARMLESS], []))) return []; // not even that
    const found = await search(probe, suspects, () => []);
    return found.length > 0 ? found : await search(probe, suspects, ({ hooks }) => hooks);
  } catch (error) {
    if (error instanceof IptablesError) return [];
    throw error;
  } finally {
    await probe.remove();
  }
}

async function search<S extends Suspect>(
  probe: Probe,
  suspects: readonly S[],
  hooksOf: (suspect: S) => readonly string[],
): Promise<RefusedAt<S>[]> {
  const groups = new Map<string, Map<string, S[]>>();
  for (const suspect of suspects) {
    const text = probeText(suspect.texts);
    if (text === "") continue;
    const byText = getOrSet(groups, hooksOf(suspect).join(" "), () => new Map<string, S[]>());
    getOrSet(byText, text, () => []).push(suspect);
  }
  const refused: RefusedAt<S>[] = [];
  for (const [key, byText] of groups) {
    const hooks = key === "" ? [] : key.split(" ");
    for (const text of await refusedTexts(probe, [...byText.keys()], hooks)) {
      const like = byText.get(text) ?? [];
      const [first] = like;
      if (first === undefined || first.standIns.length === 0) continue;
      const level = await nearest(probe, first, hooks);
      refused.push(...like.map((suspect) => ({ ...suspect, level })));
    }
    if (refused.length > MOST) return [...refused, ...alike(suspects, refused)];
  }
  return refused;
}

/** Those that need what many needed that were refused. */
function alike<S extends Suspect>(suspects: readonly S[], refused: readonly RefusedAt<S>[]): RefusedAt<S>[] {
  const known = new Set(refused.map(({ chain, index }) => `${chain} ${index}`));
  return suspects.flatMap((suspect) => {
    if (known.has(`${suspect.chain} ${suspect.index}`)) return [];
    const like = refused.filter(({ likeness }) => likeness === suspect.likeness);
    const [first] = like;
    return first === undefined || like.length < MANY || suspect.standIns.length <= first.level
      ? []
      : [{ ...suspect, level: first.level }];
  });
}

async function refusedTexts(probe: Probe, texts: readonly string[], hooks: readonly string[]): Promise<string[]> {
  const refused: string[] = [];
  const among = async (some: readonly string[]): Promise<void> => {
    if (refused.length > MOST || (await probe.takes(some, hooks))) return;
    const middle = some.length >> 1;
    if (middle > 0) {
      await among(some.slice(0, middle));
      await among(some.slice(middle));
    } else if (await probe.refuses(some, hooks)) refused.push(...some);
  };
  await among(texts);
  return refused;
}

/** The first stand-in the kernel takes; the last when it takes none. */
async function nearest(probe: Probe, { standIns }: Suspect, hooks: readonly string[]): Promise<number> {
  for (const [level, texts] of standIns.entries()) if (await probe.takes([probeText(texts)], hooks)) return level;
  return standIns.length - 1;
}

/** A chain for trials. */
class Probe {
  readonly #layer: IptablesTable;
  readonly #restore: (text: string) => Promise<void>;
  readonly #hooked = new Set<string>();

  constructor(layer: IptablesTable, restore: (text: string) => Promise<void>) {
    this.#layer = layer;
    this.#restore = restore;
  }

  /** @param hooks the kernel's chains that lead to the trial; throws when the kernel could not be asked */
  async takes(texts: readonly string[], hooks: readonly string[]): Promise<boolean> {
    const lines = texts.flatMap((text) => text.split("\n")).filter((text) => text !== "");
    const behind = hooks.filter((hook) => !this.#hooked.has(hook));
    const isTaken = await this.#attempt(
      `:${PROBE} - -`,
      ...lines.map((line) => `-A ${PROBE} ${line}`),
      ...behind.map((hook) => `-A ${hook} ${jumpOf(hook)}`),
      ...[...this.#hooked].filter((hook) => !hooks.includes(hook)).map((hook) => `-D ${hook} ${jumpOf(hook)}`),
    );
    if (isTaken) {
      this.#hooked.clear();
      for (const hook of hooks) this.#hooked.add(hook);
    }
    return isTaken;
  }

  /** It is the rule, and nothing that passes. */
  async refuses(texts: readonly string[], hooks: readonly string[]): Promise<boolean> {
    const harmless = () => this.takes([HARMLESS], hooks);
    return (await harmless()) && !(await this.takes(texts, hooks)) && (await harmless());
  }

  async remove(): Promise<void> {
    const gone = [...this.#hooked].map((hook) => `-D ${hook} ${jumpOf(hook)}`);
    await this.#attempt(`:${PROBE} - -`, ...gone).catch(() => false);
    await this.#attempt(`--delete-chain ${PROBE}`).catch(() => false);
  }

  #attempt(...lines: readonly string[]): Promise<boolean> {
    return this.#restore(`*${this.#layer}\n${lines.join("\n")}\nCOMMIT\n`).then(
      () => true,
      (error: unknown) => {
        if (error instanceof IptablesError && !error.isPassing) return false;
        throw error;
      },
    );
  }
}

/** No interface can have that name. */
const jumpOf = (hook: string): string =>
  `${hook === "OUTPUT" || hook === "POSTROUTING" ? "-o" : "-i"} .. --jump ${PROBE}`;

/** Without comments, which differ where rules do not, and without other chains, which may not be there yet. */
const probeText = (texts: readonly RuleText[]): string =>
  texts
    .map((text) =>
      text
        .replace(/-m comment --comment "[^"]*" ?/g, "")
        .replace(/--(?:jump|goto) cali-\S+/, HARMLESS)
        .trim(),
    )
    .filter((text) => text !== "")
    .join("\n");

function getOrSet<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
