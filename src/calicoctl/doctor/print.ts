// Findings for people.
import type { Finding } from "./finding.ts";

export function printFindings(findings: readonly Finding[], examined: string): string {
  const count = (severity: Finding["severity"]) => findings.filter((each) => each.severity === severity).length;
  const sum =
    findings.length === 0
      ? `Nothing wrong found in ${examined}.\n`
      : `${amount(count("error"), "error")}, ${amount(count("warning"), "warning")} in ${examined}.\n`;
  return findings.map((finding) => `${describe(finding)}\n`).join("") + sum;
}

function describe({ severity, problem, cause, evidence, fix }: Finding): string {
  return [
    `${severity.toUpperCase()}: ${problem}`,
    `  why       ${cause}`,
    ...evidence.map((line, i) => `  ${(i === 0 ? "evidence" : "").padEnd(10)}${line}`),
    `  fix       ${fix}`,
    "",
  ].join("\n");
}

const amount = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;
