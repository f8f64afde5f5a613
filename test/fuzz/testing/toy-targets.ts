// Defines targets with known faults. The driver's test checks that each kind of fault is found.
import { bytes } from "../structure/bytes.ts";
import { text } from "../structure/text.ts";
import { type FuzzTarget, requireEqual, textOf } from "../target.ts";

class NotANumber extends Error {}

/** Parses a number. An empty line causes another error than the declared one. */
function parseNumber(input: string): number {
  if (input.includes("\n\n")) throw new TypeError("an empty line");
  if (!/^\d+\n?$/.test(input)) throw new NotANumber(`${JSON.stringify(input)} is not a number`);
  return Number(input);
}

const allocated: Uint8Array[] = [];

export const targets: Readonly<Record<string, FuzzTarget>> = {
  correct: {
    about: "a parser without a fault",
    structure: text,
    rejections: [NotANumber],
    run: (input) => {
      const content = textOf(input);
      if (!/^\d{1,9}$/.test(content)) throw new NotANumber("not a number");
      requireEqual(Number(String(Number(content))), Number(content), "round trip");
      return true;
    },
  },
  "wrong-error": {
    about: "a parser that throws a TypeError for an empty line",
    structure: text,
    dictionary: ["\n\n"],
    rejections: [NotANumber],
    run: (input) => Number.isFinite(parseNumber(textOf(input))),
  },
  "broken-round-trip": {
    about: "a parser that loses leading zeros",
    structure: text,
    rejections: [NotANumber],
    run: (input) => {
      const content = textOf(input).trim();
      requireEqual(String(parseNumber(content)), content, "round trip");
      return true;
    },
  },
  hang: {
    about: "a parser that does not end if the first byte is 255",
    structure: bytes,
    rejections: [],
    run: (input) => {
      for (let i = 0; input[0] === 255; i++) if (i < 0) return false;
      return true;
    },
  },
  "late-error": {
    about: "a parser that throws in an event that nobody awaits",
    structure: bytes,
    rejections: [],
    run: async (input) => {
      if (input[0] === 255)
        queueMicrotask(() => {
          throw new RangeError("late");
        });
      await Bun.sleep(0);
      return true;
    },
  },
  crash: {
    about: "a parser that ends the process if the first byte is 255",
    structure: bytes,
    rejections: [],
    run: (input) => {
      if (input[0] === 255) process.kill(process.pid, "SIGKILL");
      return true;
    },
  },
  memory: {
    about: "a parser that allocates 300 MB if the first byte is 255",
    structure: bytes,
    rejections: [],
    run: (input) => {
      if (input[0] === 255 && allocated.length === 0) allocated.push(new Uint8Array(300 << 20).fill(1));
      return true;
    },
  },
};
