// Reads Markdown as GitHub does, as far as links, headings and code blocks go. Imports nothing, because the website's
// configuration uses it too.

export interface Link {
  readonly target: string;
  readonly line: number;
}

export interface CodeBlock {
  /** The first word after the opening fence, such as `sh`. */
  readonly language: string;
  readonly text: string;
  /** Line of the opening fence. */
  readonly line: number;
}

interface Line {
  readonly text: string;
  readonly number: number;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*(\S*)/;

/** Returns the text with comments replaced by blanks; line numbers stay the same. */
export const withoutComments = (text: string): string =>
  text.replaceAll(/<!--[\s\S]*?-->/g, (comment) => comment.replaceAll(/[^\n]/g, ""));

function splitBlocks(text: string): { readonly prose: readonly Line[]; readonly blocks: readonly CodeBlock[] } {
  const prose: Line[] = [];
  const blocks: CodeBlock[] = [];
  let open: { readonly fence: string; readonly language: string; readonly line: number; lines: string[] } | undefined;
  for (const [i, line] of text.split("\n").entries()) {
    const number = i + 1;
    const [, fence = "", language = ""] = FENCE.exec(line) ?? [];
    if (open === undefined) {
      if (fence === "") prose.push({ text: line, number });
      else open = { fence, language, line: number, lines: [] };
    } else if (fence.startsWith(open.fence) && language === "") {
      blocks.push({ language: open.language, text: open.lines.join("\n"), line: open.line });
      open = undefined;
    } else open.lines.push(line);
  }
  return { prose, blocks };
}

export const codeBlocks = (text: string): readonly CodeBlock[] => splitBlocks(text).blocks;

const withoutCode = (line: string): string => line.replaceAll(/(`+)(?!`).*?(?<!`)\1(?!`)/g, "");

const LINK = /\]\(<?([^()\s<>]+(?:\([^()\s]*\)[^()\s]*)*)>?(?:\s+"[^"]*")?\)/g;
const DEFINITION = /^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)/;
const ATTRIBUTE = /\b(?:src|href)="([^"]+)"/g;

/** Returns the targets of all links and pictures. */
export function links(text: string): readonly Link[] {
  return splitBlocks(withoutComments(text)).prose.flatMap(({ text: raw, number }) => {
    const line = withoutCode(raw);
    const targets = [...line.matchAll(LINK), ...line.matchAll(ATTRIBUTE)].map(([, target = ""]) => target);
    const [, defined] = DEFINITION.exec(line) ?? [];
    return [...targets, ...(defined === undefined ? [] : [defined])].map((target) => ({ target, line: number }));
  });
}

/** Replaces the links for which `change` returns another target; links for which it returns undefined become plain text. */
export function changeLinks(text: string, change: (target: string) => string | undefined): string {
  const { prose } = splitBlocks(text);
  const lines = text.split("\n");
  for (const { number, text: line } of prose)
    lines[number - 1] = line.replaceAll(
      /(!?)\[((?:[^[\]]|\[[^\]]*\](?:\([^)]*\))?)*)\]\(([^()\s]+)\)/g,
      (whole, picture: string, label: string, target: string) => {
        const changed = change(target);
        return changed === undefined ? (picture === "" ? label : whole) : `${picture}[${label}](${changed})`;
      },
    );
  return lines.join("\n");
}

/** Returns the anchor that GitHub gives to a heading. */
export const githubSlug = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, "")
    .replaceAll(" ", "-");

export function title(text: string): string | undefined {
  return headings(text).find(({ level }) => level === 1)?.text;
}

function headings(text: string): readonly { readonly level: number; readonly text: string }[] {
  return splitBlocks(withoutComments(text)).prose.flatMap(({ text: line }) => {
    const [, marks = "", heading = ""] = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line) ?? [];
    // Of a link, the heading shows the label.
    return marks === "" ? [] : [{ level: marks.length, text: heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1") }];
  });
}

/** Returns the anchors of a page. */
export function anchors(text: string): ReadonlySet<string> {
  const found = new Set<string>();
  const counts = new Map<string, number>();
  for (const { text: heading } of headings(text)) {
    const slug = githubSlug(heading);
    const count = counts.get(slug) ?? 0;
    counts.set(slug, count + 1);
    found.add(count === 0 ? slug : `${slug}-${count}`);
  }
  for (const [, id = ""] of text.matchAll(/<a (?:id|name)="([^"]+)"/g)) found.add(id);
  return found;
}
