import { expect, test } from "bun:test";
import { alignColumns, formatBoxTable, formatTable, textWidth } from "./table.ts";

test("formatTable: three blanks follow every cell, also the last", () =>
  expect(formatTable(["NAME", "CIDR"], [["a", "10.1.0.0/16"]])).toBe("NAME   CIDR          \na      10.1.0.0/16   \n"));

test("formatTable: a column has at least five characters", () => expect(formatTable(["A"], [])).toBe("A    \n"));

test("formatTable: characters are counted, not bytes", () =>
  expect(formatTable(["NAME", "X"], [["éé", "1"]])).toBe("NAME   X    \néé     1    \n"));

test("formatTable: a cell cannot break the table or control the terminal", () =>
  expect(formatTable(["N"], [["a\nb\x1b[31m"]])).toBe("N                \na\\nb\\u001b[31m   \n"));

test("formatBoxTable: columns are as wide as their widest cell, and may be aligned to the right", () =>
  expect(formatBoxTable([{ title: "CIDR" }, { title: "IPS", align: "right" }], [["10.0.0.0/8", "7"]])).toBe(
    "+------------+-----+\n| CIDR       | IPS |\n+------------+-----+\n| 10.0.0.0/8 |   7 |\n+------------+-----+\n",
  ));

test("formatBoxTable: a cell cannot break the table or control the terminal", () =>
  expect(formatBoxTable([{ title: "INFO" }], [["down\n\x1b[2J"]])).toBe(
    "+-----------------+\n| INFO            |\n+-----------------+\n| down\\n\\u001b[2J |\n+-----------------+\n",
  ));

test("formatBoxTable: headings may be centred, with numbers to the right", () =>
  expect(
    formatBoxTable(
      [{ title: "PROPERTY" }, { title: "VALUE" }],
      [
        ["AutoAllocateBlocks", "true"],
        ["MaxBlocksPerHost", "5"],
      ],
      "center",
    ),
  ).toBe(
    "+--------------------+-------+\n|      PROPERTY      | VALUE |\n+--------------------+-------+\n" +
      "| AutoAllocateBlocks | true  |\n| MaxBlocksPerHost   |     5 |\n+--------------------+-------+\n",
  ));

test("formatBoxTable: characters are counted, not bytes", () =>
  expect(formatBoxTable([{ title: "A" }, { title: "N", align: "right" }], [["é🐈", "→"]])).toBe(
    "+----+---+\n| A  | N |\n+----+---+\n| é🐈 | → |\n+----+---+\n",
  ));

test("alignColumns: two blanks between columns, none at the end, and colours have no width", () =>
  expect(
    alignColumns([
      ["HOST", "STATE", "DETAIL"],
      ["n1", "\x1b[32mready\x1b[0m", ""],
      ["node-2", "\x1b[31mdown\x1b[0m", "no answer"],
    ]),
  ).toBe("HOST    STATE  DETAIL\nn1      \x1b[32mready\x1b[0m\nnode-2  \x1b[31mdown\x1b[0m   no answer"));

test("textWidth: characters without colour codes", () => expect(textWidth("\x1b[1mé🐈\x1b[0m")).toBe(2));
