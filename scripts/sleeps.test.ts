import { expect, test } from "bun:test";
import { findSleeps } from "./sleeps.ts";

const SOURCE = `
import { delay } from "../src/lib/retry.ts";
await Bun.sleep(20); // a moment
await delay(50);
await new Promise((resolve) => setTimeout(resolve, 5));
await eventually(() => isReady());
// await Bun.sleep(1) is not allowed
const timer = setTimeout(() => stop(), 1000);
options.delay(3);
`;

test("finds sleeps, without comments, timers and methods of other objects", () =>
  expect(findSleeps("x.test.ts", SOURCE)).toEqual([
    { place: "x.test.ts:3", text: "await Bun.sleep(20);" },
    { place: "x.test.ts:4", text: "await delay(50);" },
    { place: "x.test.ts:5", text: "await new Promise((resolve) => setTimeout(resolve, 5));" },
  ]));
