// Extracts the commands of a page: lines of its code blocks that begin with a program, without their remarks. Blocks with a
// language are tested elsewhere: pages.test.ts runs `sh` blocks, and scripts/documents/examples.test.ts checks `console` and
// `yaml` blocks.

export interface ShownCommand {
  readonly line: number;
  readonly text: string;
}

const CALICO_PROGRAM = /^(?:dist\/)?(?:calico|calicoctl|calico-[a-z-]+|check-status)$/;
const OTHER_PROGRAMS = new Set(["buildah", "cat", "ctr", "export", "kubectl", "make", "mmdebstrap"]);

/** @param isProgram whether a word is a program of this machine; lines that begin with it are commands, too */
export function commandsOf(page: string, isProgram: (word: string) => boolean = () => false): ShownCommand[] {
  const lines = page.split("\n");
  const found: ShownCommand[] = [];
  let isFenced = false;
  let hasLanguage = false;
  for (let i = 0; i < lines.length; i++) {
    const raw = lines[i] ?? "";
    if (raw.startsWith("```")) {
      isFenced = !isFenced;
      hasLanguage = isFenced && raw.length > 3;
    }
    if (hasLanguage || (!isFenced && !raw.startsWith("    "))) continue;
    const text = raw.trim().replace(/^\$ /, "");
    const [word = ""] = text.split(" ");
    if (word === text || isUsage(text)) continue;
    if (!CALICO_PROGRAM.test(word) && !OTHER_PROGRAMS.has(word) && !isProgram(word)) continue;
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

/** Removes a remark, which begins with a space and `# `, or after at least three spaces. */
function withoutRemark(text: string): string {
  return text.replace(/ +# .*$/, "").replace(/ {3,}.*$/, "");
}

/** Whether the line describes the usage of a command instead of being one. */
const isUsage = (text: string): boolean => /<command>|\[-| \| -/.test(text);
