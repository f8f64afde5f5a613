import { expect, test } from "bun:test";
import { nearest } from "./nearest-name.ts";

const COMMANDS = ["up", "down", "status", "get", "set", "heal", "delete", "Log", "TCP"];
const cases: readonly (readonly [string, string | undefined])[] = [
  ["gte", "get"], // two neighbours swapped
  ["tcp", "TCP"],
  ["stauts", "status"],
  ["delet", "delete"],
  ["ls", undefined], // two letters of two are wrong
  ["ssh", undefined],
  ["shell", undefined], // "heal" with two letters of five wrong
  ["foo", undefined],
  ["dp", undefined], // one letter of two is wrong
  ["UP", "up"],
];
for (const [word, want] of cases)
  test(`nearest: ${word} suggests ${want ?? "nothing"}`, () => expect(nearest(word, COMMANDS)).toBe(want));
