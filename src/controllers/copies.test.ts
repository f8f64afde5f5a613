import { expect, test } from "bun:test";
import { shortenName } from "./copies.ts";

test("TC-K08 a policy name that is too long with its prefix is cut and stays unique", () => {
  const long = (last: string) => `knp.default.${"a".repeat(252)}${last}`;
  const [one, two] = [shortenName(long("x")), shortenName(long("y"))];
  expect([one.length, two.length]).toEqual([253, 253]);
  expect(one).not.toBe(two);
  expect(one).toMatch(/^knp\.default\.a+-[0-9a-f]{16}$/);
  expect(shortenName(long("x"))).toBe(one);
  expect(shortenName("knp.default.short")).toBe("knp.default.short");
});

test("TC-K08 a cut name has no dot or dash before the hash", () => {
  const name = `knp.default.${"a".repeat(220)}${".".repeat(1)}${"b".repeat(3)}${"-".repeat(20)}${"c".repeat(40)}`;
  expect(shortenName(name)).toMatch(/^[a-z0-9.-]*[a-z0-9]-[0-9a-f]{16}$/);
});
