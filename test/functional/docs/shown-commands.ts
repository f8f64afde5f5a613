// The commands a page shows: lines of its code blocks that begin with a program of ours, without the remark behind.

export interface ShownCommand {
  readonly line: number;
  readonly text: string;
}

const PROGRAMS = /^(?:dist\/)?(?:calico|calicoctl|calico-[a-z-]+|install|check-status|make|kubectl|export) /;

export function commandsOf(page: string): ShownCommand[] {
  const lines = page.split("\n");
  const found: ShownCommand[] = [];
  let isFenced = false;
  for (let i = 0; i < lines.length; i++) {
    const raw = lines[i] ?? "";
    if (raw.startsWith("```")) isFenced = !isFenced;
    if (!isFenced && !raw.startsWith("    ")) continue;
    const text = raw.trim().replace(/^\$ /, "");
    if (!PROGRAMS.test(text) || isUsage(text)) continue;
    const start = i + 1;
    let command = withoutRemark(text);
    const end = /<<(\w+)$/.exec(command)?.[1];
    while (end !== undefined && i + 1 < lines.length) {
      const next = (lines[++i] ?? "").replace(/^ {4}/, "");
      command += `\n${next}`;
      if (next === end) break;
    }
    found.push({ line: start, text: command });
  }
  return found;
}

/** Remarks begin with two blanks and a #, or after three blanks. */
function withoutRemark(text: string): string {
  return text.replace(/ +# .*$/, "").replace(/ {3,}.*$/, "");
}

/** A grammar, not something to type. */
const isUsage = (text: string): boolean => /<command>|\[-| \| -/.test(text);
