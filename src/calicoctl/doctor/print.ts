// Prints what doctor examined, its findings, and the checks that failed.
import type { Examination } from "./examine.ts";
import type { Finding } from "./finding.ts";

/** The scope of the examination, for the first line of the output. */
export interface Scope {
  /** The source of the resources: "the datastore", or "the files in DIR". */
  readonly source: string;
  readonly nodes: readonly string[];
  /** The node whose host was examined: the host that doctor runs on. */
  readonly host?: string;
  /** The name of this host's node, if the source has no such Node. */
  readonly missing?: string;
}

export function printExamination({ findings, notChecked }: Examination, scope: Scope): string {
  const count = (severity: Finding["severity"]) => findings.filter((each) => each.severity === severity).length;
  const summary =
    findings.length > 0
      ? `${amount(count("error"), "error")}, ${amount(count("warning"), "warning")}.\n`
      : `Nothing wrong found${notChecked.length === 0 ? "" : " by the other checks"}.\n`;
  const failed = [...Map.groupBy(notChecked, ({ reason }) => reason)].map(
    ([reason, checks]) => `could not check ${checks.map(({ check }) => check).join(", ")}: ${reason}\n`,
  );
  return [
    `${headline(scope)}\n`,
    ...findings.map((finding) => `\n${describe(finding)}`),
    "\n",
    ...failed,
    summary,
  ].join("");
}

/** The remaining nodes are only counted. */
const MAX_NAMES = 10;

/** `Examined: the datastore (3 nodes), this host (node1). Not examined: hosts node2, node3.` */
export function headline({ source, nodes, host, missing }: Scope): string {
  const examined = [
    `${source} (${amount(nodes.length, "node")})`,
    ...(host === undefined ? [] : [`this host (${host})`]),
  ];
  const others = nodes.filter((name) => name !== host);
  const shown = others.length > MAX_NAMES ? others.slice(0, MAX_NAMES) : others;
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
