// Records when each step of a request was completed, with a clock that all processes share. Enabled if CALICO_CNI_TIMES, in the
// environment of the plugin or of the service, names a file. `bench/cni.ts` prints the durations from it.

export const TIMES_VARIABLE = "CALICO_CNI_TIMES";

/** Name of the completed step, and milliseconds since 1970 with fractions. */
export type StepTime = readonly [step: string, at: number];

export type MarkStep = (step: string, at?: number) => void;

const now = (): number => performance.timeOrigin + performance.now();

export function stepTimes(): { readonly mark: MarkStep; readonly times: readonly StepTime[] } {
  const times: StepTime[] = [];
  return { times, mark: (step, at = now()) => void times.push([step, at]) };
}

export const noTimes: MarkStep = () => {};

/** Appends one line of JSON per request. */
export async function appendTimes(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
  times: readonly StepTime[],
): Promise<void> {
  const { appendFileSync } = await import("node:fs");
  const { CNI_COMMAND: command, CNI_CONTAINERID: container } = env;
  appendFileSync(file, `${JSON.stringify({ command, container, times })}\n`);
}
