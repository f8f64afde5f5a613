import { expect, test } from "bun:test";
import { silentLogger } from "../lib/log.ts";
import { armDebugSwitches } from "./debug-switches.ts";

const OFF = { DebugSimulateCalcGraphHangAfter: 0, DebugSimulateDataplaneHangAfter: 0, DebugPanicAfter: 0 };

function armed(config: Partial<typeof OFF>, signal = new AbortController().signal): string[] {
  const happened: string[] = [];
  armDebugSwitches({
    config: { ...OFF, ...config },
    runner: { hang: () => void happened.push("graph") },
    driver: { hang: () => void happened.push("dataplane") },
    log: silentLogger,
    signal,
    panic: () => void happened.push("panic"),
  });
  return happened;
}

test("FC-105 each switch does its own thing, and none that is off", async () => {
  const stop = new AbortController();
  const all = [
    armed({}),
    armed({ DebugSimulateCalcGraphHangAfter: 0.001 }),
    armed({ DebugSimulateDataplaneHangAfter: 0.001 }),
    armed({ DebugPanicAfter: 0.001 }),
    armed({ DebugPanicAfter: 0.001 }, stop.signal),
  ];
  stop.abort();
  await Bun.sleep(20);
  expect(all).toEqual([[], ["graph"], ["dataplane"], ["panic"], []]);
});
