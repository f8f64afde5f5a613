import { expect, test } from "bun:test";
import { silentLogger } from "../lib/log/log.ts";
import { armDebugSwitches } from "./debug-switches.ts";

const OFF = { DebugSimulateCalcGraphHangAfter: 0, DebugSimulateDataplaneHangAfter: 0, DebugPanicAfter: 0 };

function activate(config: Partial<typeof OFF>, signal = new AbortController().signal): string[] {
  const effects: string[] = [];
  armDebugSwitches({
    config: { ...OFF, ...config },
    runner: { hang: () => void effects.push("graph") },
    driver: { hang: () => void effects.push("dataplane") },
    log: silentLogger,
    signal,
    panic: () => void effects.push("panic"),
  });
  return effects;
}

test("FC-105 each debug setting has its own effect, and none at 0", async () => {
  const stop = new AbortController();
  const all = [
    activate({}),
    activate({ DebugSimulateCalcGraphHangAfter: 0.001 }),
    activate({ DebugSimulateDataplaneHangAfter: 0.001 }),
    activate({ DebugPanicAfter: 0.001 }),
    activate({ DebugPanicAfter: 0.001 }, stop.signal),
  ];
  stop.abort();
  await Bun.sleep(20);
  expect(all).toEqual([[], ["graph"], ["dataplane"], ["panic"], []]);
});
