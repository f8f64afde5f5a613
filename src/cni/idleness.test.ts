import { expect, test } from "bun:test";
import { Idleness } from "./idleness.ts";

function started(seconds: number) {
  const clock = { ms: 5000 };
  const idleness = new Idleness(seconds, () => clock.ms);
  return { clock, idleness };
}

test("it is over when nobody has asked for so long", () => {
  const { clock, idleness } = started(10);
  clock.ms += 9999;
  expect(idleness.isOver).toBeFalse();
  clock.ms += 1;
  expect(idleness.isOver).toBeTrue();
});

test("the time begins when the last answer is given, and is never over before", () => {
  const { clock, idleness } = started(10);
  const first = idleness.attend(10);
  const second = idleness.attend(10);
  clock.ms += 60_000;
  expect(idleness.isOver).toBeFalse();
  first[Symbol.dispose]();
  clock.ms += 60_000;
  expect(idleness.isOver).toBeFalse();
  second[Symbol.dispose]();
  clock.ms += 9999;
  expect(idleness.isOver).toBeFalse();
  clock.ms += 1;
  expect(idleness.isOver).toBeTrue();
});

test("the last who says for how long is heeded", () => {
  const { clock, idleness } = started(1);
  idleness.attend(20)[Symbol.dispose]();
  clock.ms += 19_000;
  expect(idleness.isOver).toBeFalse();
  idleness.attend(2)[Symbol.dispose]();
  clock.ms += 2000;
  expect(idleness.isOver).toBeTrue();
});

test("who does not want to be waited for is attended to and changes nothing", () => {
  const { clock, idleness } = started(10);
  clock.ms += 5000;
  const asked = idleness.attend(0);
  clock.ms += 5000;
  expect(idleness.isOver).toBeFalse();
  asked[Symbol.dispose]();
  expect(idleness.isOver).toBeTrue();
});

test("a pause is shorter than what is over, and none while somebody is attended to", () => {
  const { clock, idleness } = started(10);
  clock.ms += 499;
  expect(idleness.lasts(500)).toBeFalse();
  clock.ms += 1;
  expect([idleness.lasts(500), idleness.isOver]).toEqual([true, false]);
  const attended = idleness.attend(10);
  clock.ms += 5000;
  expect(idleness.lasts(500)).toBeFalse();
  attended[Symbol.dispose]();
  expect(idleness.lasts(500)).toBeFalse();
});
