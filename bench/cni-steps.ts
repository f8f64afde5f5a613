// Summarises where the time of a CNI call is spent: the medians of the step times that the plugin and the service record.
import { readFileSync } from "node:fs";
import { median } from "./support/percentile.ts";

interface Line {
  readonly command: string;
  readonly container: string;
  readonly times: readonly (readonly [step: string, at: number])[];
}

/** The start and end of each call, on the same clock as the steps. */
export type CallTimes = ReadonlyMap<string, { readonly startMs: number; readonly endMs: number }>;

/** Returns `start 4.1 · request sent 0.6 · …`: the median time of each step since the previous step, in order. */
export function describeSteps(file: string, command: string, calls: CallTimes): string {
  const since = new Map<string, number[]>();
  const put = (step: string, ms: number): void => {
    const list = since.get(step);
    if (list === undefined) since.set(step, [ms]);
    else list.push(ms);
  };
  for (const text of readFileSync(file, "utf8").split("\n")) {
    if (text === "") continue;
    const line = JSON.parse(text) as Line;
    const call = calls.get(`${line.command} ${line.container}`);
    if (line.command !== command || call === undefined) continue;
    for (const [step, at] of line.times) put(step, at - call.startMs);
    put("seen by the caller", call.endMs - call.startMs);
  }
  const steps = [...since].map(([step, list]) => ({ step, at: median(list) })).toSorted((a, b) => a.at - b.at);
  return steps.map(({ step, at }, i) => `${step} ${(at - (steps[i - 1]?.at ?? 0)).toFixed(2)}`).join(" · ");
}
