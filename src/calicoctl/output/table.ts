// Columns of text: every cell is followed by at least three blanks, also the last of a line, and a column is never
// narrower than five. Characters are counted, not bytes. A cell cannot break the table or speak to the terminal.
import { onOneLine } from "../../lib/visible-text.ts";

const PADDING = 3;
const LEAST_WIDTH = 5;

/** @param emphasize how headings are shown; their width is that of the plain text */
export function formatTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  emphasize: (heading: string) => string = (heading) => heading,
): string {
  const widths = headings.map((heading) => heading.length);
  const clean = rows.map((row) => row.map(onOneLine));
  for (const row of clean)
    for (let i = 0; i < row.length; i++) widths[i] = Math.max(widths[i] ?? 0, length(row[i] ?? ""));
  const full = widths.map((width) => Math.max(LEAST_WIDTH, width + PADDING));
  const line = (cells: readonly string[]) => {
    let out = "";
    for (let i = 0; i < cells.length; i++) {
      const cell = cells[i] ?? "";
      out += cell + " ".repeat((full[i] ?? 0) - length(cell));
    }
    return out;
  };
  return `${[emphasize(line(headings)), ...clean.map(line)].join("\n")}\n`;
}

const ASCII = /^[\x20-\x7e]*$/;
const length = (text: string) => (ASCII.test(text) ? text.length : [...text].length);
