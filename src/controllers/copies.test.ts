import { expect, test } from "bun:test";
import { fittingName } from "./copies.ts";

test("TC-K08 a policy's name that is too long with its prefix is cut, and told apart from its neighbours", () => {
  const long = (last: string) => `knp.default.${"a".repeat(252)}${last}`;
  const [one, two] = [fittingName(long("x")), fittingName(long("y"))];
  expect([one.length, two.length]).toEqual([253, 253]);
  expect(one).not.toBe(two);
  expect(one).toMatch(/^knp\.default\.a+-[0-9a-f]{16}$/);
  expect(fittingName(long("x"))).toBe(one);
  expect(fittingName("knp.default.short")).toBe("knp.default.short");
});

test("TC-K08 the cut leaves no dot or dash at its edge", () => {
  const name = `knp.default.${"a".repeat(220)}${".".repeat(1)}${"b".repeat(3)}${"-".repeat(20)}${"c".repeat(40)}`;
  expect(fittingName(name)).toMatch(/^[a-z0-9.-]*[a-z0-9]-[0-9a-f]{16}$/);
});
