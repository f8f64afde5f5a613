import { expect, test } from "bun:test";
import { fiveDigits, withShare } from "./amounts.ts";
import { formatBoxTable } from "./box-table.ts";

test("columns are as wide as their widest cell, numbers may stand right", () =>
  expect(formatBoxTable([{ title: "CIDR" }, { title: "IPS", align: "right" }], [["10.0.0.0/8", "7"]])).toBe(
    "+------------+-----+\n| CIDR       | IPS |\n+------------+-----+\n| 10.0.0.0/8 |   7 |\n+------------+-----+\n",
  ));

test("a cell cannot break the table or speak to the terminal", () =>
  expect(formatBoxTable([{ title: "INFO" }], [["down\n\x1b[2J"]])).toBe(
    "+-----------------+\n| INFO            |\n+-----------------+\n| down\\n\\u001b[2J |\n+-----------------+\n",
  ));

test("headings may be centred, with numbers to the right", () =>
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

for (const [value, want] of [
  [0n, "0"],
  [16n, "16"],
  [65536n, "65536"],
  [1n << 24n, "1.6777e+07"],
  [1n << 80n, "1.2089e+24"],
  [100_000n, "1e+05"],
] as const)
  test(`${value} is ${want}`, () => expect(fiveDigits(value)).toBe(want));

for (const [part, whole, want] of [
  [3n, 16n, "3 (19%)"],
  [1n, 8n, "1 (12%)"],
  [7n, 8n, "7 (88%)"],
  [0n, 0n, "0 (0%)"],
] as const)
  test(`${part} of ${whole} is ${want}`, () => expect(withShare(part, whole)).toBe(want));
