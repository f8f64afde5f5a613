import { expect, test } from "bun:test";
import { type MatrixCell, renderMatrix } from "./matrix.ts";

const cells = (...names: readonly string[]): MatrixCell[] =>
  names.flatMap((from) =>
    names.map((to) => ({ from, to, address: "10.0.0.1", result: from === to ? "reached" : "silent" }) as const),
  );

test("rows and columns have the names of the pods", () => {
  expect(renderMatrix(cells("default/a", "shop/b"), false)).toBe(
    [
      "from \\ to  a  shop/b",
      "a          ✓  ✗",
      "shop/b     ✗  ✓",
      "✓ reached  ✗ no response  ! refused   2 of 4 connections work",
    ].join("\n"),
  );
});

test("columns are numbered if the matrix is wider than the terminal", () => {
  const names = Array.from({ length: 10 }, (_, i) => `default/a-long-name-${i}`);
  const lines = renderMatrix(cells(...names), true, 100).split("\n");
  expect(lines[0]).toBe("from \\ to         1  2  3  4  5  6  7  8  9  10");
  expect(lines[1]).toStartWith(" 1 a-long-name-0  \x1b[32m✓\x1b[0m  \x1b[31m✗\x1b[0m");
  expect(lines[10]).toStartWith("10 a-long-name-9  ");
});
