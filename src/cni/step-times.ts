// When each step of a request was done, by a clock that all processes share. Kept only where CALICO_CNI_TIMES names a
// file for it, in the plugin's environment or in the service's: `bench/cni` shows from it where a pod's milliseconds go.

export const TIMES_VARIABLE = "CALICO_CNI_TIMES";

/** Name of the step that ended, and milliseconds since 1970 with their fractions. */
export type StepTime = readonly [step: string, at: number];

export type MarkStep = (step: string, at?: number) => void;

const now = (): number => performance.timeOrigin + performance.now();

export function stepTimes(): { readonly mark: MarkStep; readonly times: readonly StepTime[] } {
  const times: StepTime[] = [];
  return { times, mark: (step, at = now()) => void times.push([step, at]) };
}

export const noTimes: MarkStep = () => {};

/** One line of JSON per request. */
export async function appendTimes(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
  times: readonly StepTime[],
): Promise<void> {
  const { appendFileSync } = await import("node:fs");
  const { CNI_COMMAND: command, CNI_CONTAINERID: container } = env;
  appendFileSync(file, `${JSON.stringify({ command, container, times })}\n`);
}
