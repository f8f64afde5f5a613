// Renders tables of text in three styles: columns as `calicoctl get` prints them, cells in a box as `calicoctl ipam show`
// prints them, and aligned columns whose cells may be coloured. Widths are counted in characters, not in bytes, and
// without colour codes. In the first two styles control characters of a cell are escaped, so that text from other programs
// cannot break the table or control the terminal.
import { escapeCell } from "./escape-control-characters.ts";

type Row = readonly string[];

const COLUMN_PADDING = 3;
const MIN_COLUMN_WIDTH = 5;

/**
 * Columns without lines. At least three blanks follow every cell, also the last of a line.
 * @param emphasize applied to the line of headings; widths are those of the plain text
 */
export function formatTable(
  headings: Row,
  rows: readonly Row[],
  emphasize: (heading: string) => string = (heading) => heading,
): string {
  const escaped = rows.map((row) => row.map(escapeCell));
  const widths = columnWidths([headings, ...escaped]).map((width) =>
    Math.max(MIN_COLUMN_WIDTH, width + COLUMN_PADDING),
  );
  const line = (cells: Row) => {
    let out = "";
    for (let i = 0; i < cells.length; i++) out += padded(cells[i] ?? "", widths[i] ?? 0);
    return out;
  };
  return `${[emphasize(line(headings)), ...escaped.map(line)].join("\n")}\n`;
}

export interface BoxColumn {
  readonly title: string;
  readonly align?: "left" | "right";
}

/** @param titles alignment of the headings; if they are centred, numbers are aligned to the right */
export function formatBoxTable(
  columns: readonly BoxColumn[],
  rows: readonly Row[],
  titles: "left" | "center" = "left",
): string {
  const escaped = rows.map((row) => row.map(escapeCell));
  const headings = columns.map(({ title }) => title);
  const widths = columnWidths([headings, ...escaped]);
  const rule = `+${widths.map((width) => "-".repeat(width + 2)).join("+")}+`;
  const line = (cells: Row, alignment: (cell: string, column: number) => Alignment) =>
    `|${widths.map((width, i) => ` ${padded(cells[i] ?? "", width, alignment(cells[i] ?? "", i))} `).join("|")}|`;
  const ofCell = (cell: string, column: number): Alignment =>
    columns[column]?.align === "right" || (titles === "center" && NUMBER.test(cell)) ? "right" : "left";
  const heading = line(headings, () => titles);
  return `${[rule, heading, rule, ...escaped.map((row) => line(row, ofCell)), rule].join("\n")}\n`;
}

/** Aligned columns with two blanks between them; without blanks or a line break at the end. */
export function alignColumns(rows: readonly Row[]): string {
  const widths = columnWidths(rows);
  return rows
    .map((row) =>
      row
        .map((cell, i) => padded(cell, widths[i] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

const ASCII = /^[\x20-\x7e]*$/;
const COLOUR_CODE = /\x1b\[\d+m/g;
const NUMBER = /^-?\d+(\.\d+)?$/;

/** The number of characters of a text, without colour codes. */
export const textWidth = (text: string): number =>
  ASCII.test(text) ? text.length : [...text.replace(COLOUR_CODE, "")].length;

function columnWidths(rows: readonly Row[]): number[] {
  const widths: number[] = [];
  for (const row of rows)
    for (let i = 0; i < row.length; i++) widths[i] = Math.max(widths[i] ?? 0, textWidth(row[i] ?? ""));
  return widths;
}

type Alignment = "left" | "center" | "right";

function padded(text: string, width: number, alignment: Alignment = "left"): string {
  const blanks = width - textWidth(text);
  if (alignment === "left") return text + " ".repeat(blanks);
  const before = alignment === "right" ? blanks : Math.floor(blanks / 2);
  return " ".repeat(before) + text + " ".repeat(blanks - before);
}
