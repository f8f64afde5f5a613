// Parses the summary at the end of the output of the Kubernetes test suite.

export interface Summary {
  readonly passed: number;
  readonly failed: number;
  readonly seconds: number;
  /** Full names of the specs that failed. */
  readonly failures: readonly string[];
}

/** Returns undefined if the suite ended without a summary. */
export function readSummary(output: string): Summary | undefined {
  const plain = output.replace(/\x1b\[[0-9;]*m/g, "");
  const ran = /^Ran \d+ of \d+ Specs in ([\d.]+) seconds/m.exec(plain);
  const counts = /(\d+) Passed \| (\d+) Failed/.exec(plain);
  if (ran === null || counts === null) return undefined;
  const [passed, failed] = [Number(counts[1]), Number(counts[2])];
  const failures = [...plain.matchAll(/^\s*\[FAIL\] (.+)$/gm)].map((match) => (match[1] ?? "").trim());
  return { passed, failed, seconds: Number(ran[1]), failures: [...new Set(failures)] };
}

export function renderSummary(run: string, { passed, failed, seconds }: Summary): string {
  const whole = Math.round(seconds);
  const rest = String(whole % 60).padStart(2, "0");
  return `${run}: ${passed} passed, ${failed} failed, ${Math.floor(whole / 60)} min ${rest} s`;
}
