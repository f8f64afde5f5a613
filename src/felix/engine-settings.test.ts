import { expect, test } from "bun:test";
import { engineEnvironment } from "./engine-settings.ts";

test("the engine is restarted once, with the missing variables", () => {
  const first = engineEnvironment({ PATH: "/bin" });
  expect(first).toMatchObject({ PATH: "/bin", BUN_GC_TIMER_DISABLE: "1" });
  expect(engineEnvironment(first ?? {})).toBeUndefined();
});

test("keeps variables that are already set", () => {
  expect(engineEnvironment({ BUN_JSC_useFTLJIT: "1" })).toMatchObject({ BUN_JSC_useFTLJIT: "1" });
});
