import { expect, test } from "bun:test";
import { quote, shorten } from "./shorten.ts";

test("up to 200 characters are shown as they are, of more the beginning", () => {
  const text = "x".repeat(200);
  expect(shorten(text)).toBe(text);
  expect(shorten(`${text}y`)).toBe(`${"x".repeat(197)}...`);
});

test("quote escapes what could break a line", () => {
  expect(quote('a "b"\n')).toBe('"a \\"b\\"\\n"');
  expect(quote("x".repeat(256 * 1024))).toHaveLength(202);
});
