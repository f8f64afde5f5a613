// Where the milliseconds of one CNI call go: the step times the plugin and the service write down, as medians.
import { readFileSync } from "node:fs";
import { median } from "./support/percentile.ts";

interface Line {
  readonly command: string;
  readonly container: string;
  readonly times: readonly (readonly [step: string, at: number])[];
}

/** When each call began and ended, by the same clock. */
export type Called = ReadonlyMap<string, { readonly began: number; readonly ended: number }>;

/** `start 4.1 · request sent 0.6 · …`: each step's time since the step before it, medians, in the order they happen. */
export function describeSteps(file: string, command: string, called: Called): string {
  const since = new Map<string, number[]>();
  const put = (step: string, ms: number): void => {
    const list = since.get(step);
    if (list === undefined) since.set(step, [ms]);
    else list.push(ms);
  };
  for (const text of readFileSync(file, "utf8").split("\n")) {
    if (text === "") continue;
    const line = JSON.parse(text) as Line;
    const call = called.get(`${line.command} ${line.container}`);
    if (line.command !== command || call === undefined) continue;
    for (const [step, at] of line.times) put(step, at - call.began);
    put("seen by the caller", call.ended - call.began);
  }
  const steps = [...since].map(([step, list]) => ({ step, at: median(list) })).toSorted((a, b) => a.at - b.at);
  return steps.map(({ step, at }, i) => `${step} ${(at - (steps[i - 1]?.at ?? 0)).toFixed(2)}`).join(" · ");
}
