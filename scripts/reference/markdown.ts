// Renders Markdown tables.

export const code = (text: string): string => (text === "" ? "" : `\`${text}\``);

/** Escapes what would end a cell or, on the website, begin a tag. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");

export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map(cell).join(" | ")} |`;
  return [line(headings), `|${headings.map(() => "---|").join("")}`, ...rows.map(line)].join("\n");
}
