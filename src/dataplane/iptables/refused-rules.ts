// Which rules the kernel does not take. iptables writes a table as a whole and seldom says which of its rules was refused:
// they are tried, by halves, in a chain that no packet sees.
import { IptablesError, type IptablesTable } from "../../kernel/index.ts";
import type { RuleAt } from "../rules/aside.ts";
import type { RuleText } from "./lower.ts";

export interface Suspect extends RuleAt {
  readonly texts: readonly RuleText[];
}

const PROBE = "cali-probe";
/** So many different ones are searched for; were there more, the fault lies elsewhere. */
const MOST = 32;

/** None when the rules are not the reason, or cannot be told apart. */
export async function findRefused<S extends Suspect>(
  layer: IptablesTable,
  suspects: readonly S[],
  restore: (text: string) => Promise<void>,
): Promise<S[]> {
  const attempt = (...lines: readonly string[]) =>
    restore(`*${layer}\n${lines.join("\n")}\nCOMMIT\n`).then(
      () => true,
      (error: unknown) => {
        if (error instanceof IptablesError) return false;
        throw error;
      },
    );
  const isTaken = (texts: readonly string[]) => attempt(`:${PROBE} - -`, ...texts.map((text) => `-A ${PROBE} ${text}`));
  const byText = new Map<string, S[]>();
  for (const suspect of suspects) {
    const text = suspect.texts.map(probeText).join("\n");
    const equal = byText.get(text);
    if (equal === undefined) byText.set(text, [suspect]);
    else equal.push(suspect);
  }
  const refused: string[] = [];
  const search = async (among: readonly string[]): Promise<void> => {
    if (refused.length > MOST || (await isTaken(among.flatMap((text) => text.split("\n"))))) return;
    const middle = among.length >> 1;
    if (middle === 0) refused.push(...among);
    else {
      await search(among.slice(0, middle));
      await search(among.slice(middle));
    }
  };
  try {
    if (!(await isTaken(["--jump RETURN"]))) return []; // not even that
    await search([...byText.keys()].filter((text) => text !== ""));
  } finally {
    await attempt(`:${PROBE} - -`);
    await attempt(`--delete-chain ${PROBE}`);
  }
  return refused.length > MOST ? [] : refused.flatMap((text) => byText.get(text) ?? []);
}

/** Without comments, which differ where rules do not, and without other chains, which may not be there yet. */
const probeText = (text: RuleText): string =>
  text
    .replace(/-m comment --comment "[^"]*" ?/g, "")
    .replace(/--(?:jump|goto) cali-\S+/, "--jump RETURN")
    .trim();
