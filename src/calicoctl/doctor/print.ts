// Prints what doctor examined, its findings, and the checks that failed.
import type { Examination } from "./examine.ts";
import type { Finding } from "./finding.ts";

/** What was examined, for the headline. */
export interface Scope {
  /** Where the resources come from: "the datastore", or a folder. */
  readonly source: string;
  readonly nodes: readonly string[];
  /** The node whose host was examined: the one we run on. */
  readonly host?: string;
  /** The node that this host is, where the source has no such Node. */
  readonly missing?: string;
}

export function printExamination({ findings, notChecked }: Examination, scope: Scope): string {
  const count = (severity: Finding["severity"]) => findings.filter((each) => each.severity === severity).length;
  const sum =
    findings.length > 0
      ? `${amount(count("error"), "error")}, ${amount(count("warning"), "warning")}.\n`
      : `Nothing wrong found${notChecked.length === 0 ? "" : " by the other checks"}.\n`;
  const failed = [...Map.groupBy(notChecked, ({ reason }) => reason)].map(
    ([reason, checks]) => `could not check ${checks.map(({ check }) => check).join(", ")}: ${reason}\n`,
  );
  return [`${headline(scope)}\n`, ...findings.map((finding) => `\n${describe(finding)}`), "\n", ...failed, sum].join(
    "",
  );
}

/** Names before the rest is counted. */
const MOST_NAMES = 10;

/** `Examined: the datastore (3 nodes), this host (node1). Not examined: hosts node2, node3.` */
export function headline({ source, nodes, host, missing }: Scope): string {
  const examined = [
    `${source} (${amount(nodes.length, "node")})`,
    ...(host === undefined ? [] : [`this host (${host})`]),
  ];
  const others = nodes.filter((name) => name !== host);
  const shown = others.length > MOST_NAMES ? others.slice(0, MOST_NAMES) : others;
  const more = others.length - shown.length;
  const notExamined = [
    ...(missing === undefined ? [] : [`this host (${source} has no Node ${missing})`]),
    ...(others.length === 0
      ? []
      : [`${others.length === 1 ? "host" : "hosts"} ${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`]),
  ];
  const rest = notExamined.length === 0 ? "" : ` Not examined: ${notExamined.join(", ")}.`;
  return `Examined: ${examined.join(", ")}.${rest}`;
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
