// Tables with lines around their cells, as address and session listings are known to have. What a neighbour said of itself
// may stand in one: no cell breaks the table or speaks to the terminal.
import { onOneLine } from "../../lib/visible-text.ts";

export interface BoxColumn {
  readonly title: string;
  readonly align?: "left" | "right";
}

/** @param titles where headings stand in their column */
export function formatBoxTable(
  columns: readonly BoxColumn[],
  given: readonly (readonly string[])[],
  titles: "left" | "center" = "left",
): string {
  const rows = given.map((row) => row.map(onOneLine));
  const widths = columns.map(({ title }, i) => Math.max(title.length, ...rows.map((row) => (row[i] ?? "").length)));
  const rule = `+${widths.map((width) => "-".repeat(width + 2)).join("+")}+`;
  const line = (cells: readonly string[], place: (text: string, width: number, i: number) => string) =>
    `|${widths.map((width, i) => ` ${place(cells[i] ?? "", width, i)} `).join("|")}|`;
  const heading = (text: string, width: number) => {
    const left = titles === "center" ? Math.floor((width - text.length) / 2) : 0;
    return (" ".repeat(left) + text).padEnd(width);
  };
  const cell = (text: string, width: number, i: number) =>
    columns[i]?.align === "right" || (titles === "center" && /^-?\d+(\.\d+)?$/.test(text))
      ? text.padStart(width)
      : text.padEnd(width);
  return `${[
    rule,
    line(
      columns.map(({ title }) => title),
      heading,
    ),
    rule,
    ...rows.map((row) => line(row, cell)),
    rule,
  ].join("\n")}\n`;
}
