import { expect, test } from "bun:test";
import { wantedEnvironment } from "./engine-settings.ts";

test("the engine is started anew once, with what it lacks", () => {
  const first = wantedEnvironment({ PATH: "/bin" });
  expect(first).toMatchObject({ PATH: "/bin", BUN_GC_TIMER_DISABLE: "1" });
  expect(wantedEnvironment(first ?? {})).toBeUndefined();
});

test("what somebody set by hand stays", () => {
  expect(wantedEnvironment({ BUN_JSC_useFTLJIT: "1" })).toMatchObject({ BUN_JSC_useFTLJIT: "1" });
});
