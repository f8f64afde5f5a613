// What this host's kernel refuses of what the agent writes, as the agent tells it.
import { readIfThere } from "../../lib/whole-file.ts";
import type { HostFacts } from "./facts.ts";
import { type Finding, plural } from "./finding.ts";

/** Of the agent's file, what is needed here. */
export interface RefusedPart {
  readonly kind: string;
  readonly where: string;
  readonly setting?: string;
  readonly instead: string;
  readonly error?: string;
}

const REFUSED_FILE = "/var/run/calico/programmed/refused.json";

/** Nothing where there is no such file, which is where nothing is refused. */
export function readRefused(path = REFUSED_FILE): readonly RefusedPart[] {
  const text = readIfThere(path);
  if (text === undefined) return [];
  try {
    const parts: unknown = JSON.parse(text);
    return Array.isArray(parts) ? parts.flatMap(refusedPart) : [];
  } catch {
    return [];
  }
}

function refusedPart(part: unknown): RefusedPart[] {
  if (typeof part !== "object" || part === null) return [];
  const text = (key: string): string | undefined => {
    const value = (part as Readonly<Record<string, unknown>>)[key];
    return typeof value === "string" ? value : undefined;
  };
  const [setting, error] = [text("setting"), text("error")];
  return [
    {
      kind: text("kind") ?? "rule",
      where: text("where") ?? "somewhere",
      instead: text("instead") ?? "",
      ...(setting === undefined ? {} : { setting }),
      ...(error === undefined ? {} : { error }),
    },
  ];
}

const MOST_EVIDENCE = 5;

/** One finding for all that one setting asks for. */
export function* refusedByKernel(host: HostFacts): Generator<Finding> {
  for (const [setting, parts] of Map.groupBy(host.refused, (part) => part.setting ?? "")) {
    const count = (kind: string) => parts.filter((part) => part.kind === kind).length;
    const what = [
      ...(count("rule") > 0 ? [plural(count("rule"), "rule")] : []),
      ...(count("set") > 0 ? [plural(count("set"), "IP set")] : []),
      ...parts.filter(({ kind }) => kind === "feature").map(({ where }) => where),
    ].join(" and ");
    const closes = parts.some(({ instead }) => /dropped|stop/.test(instead));
    const shown = parts
      .slice(0, MOST_EVIDENCE)
      .map(({ where, instead, error }) => [where, ...(error === undefined ? [] : [error]), instead].join(": "));
    yield {
      id: "refused-by-kernel",
      severity: closes ? "error" : "warning",
      object: `host ${host.node}`,
      problem: `the kernel of ${host.node} refuses ${what}${closes ? ": traffic that policy may allow is dropped" : ""}`,
      cause:
        setting === ""
          ? "what stands in lets nothing more pass than the rule would; everything else is in force"
          : `${setting} asks for it; what stands in lets nothing more pass, everything else is in force`,
      evidence: parts.length > shown.length ? [...shown, `and ${parts.length - shown.length} more`] : shown,
      fix:
        setting === ""
          ? "the agent's log says what each of them is; change the policy or the kernel: the agent tries again by itself"
          : "load the kernel module, or do without the setting; the agent tries rules again by itself",
      node: host.node,
      ...(setting === "" ? {} : { setting }),
    };
  }
}

/** For who asks what policy says: here the kernel may say less. */
export function refusedNote(parts: readonly RefusedPart[]): string | undefined {
  const closing = parts.filter(({ instead }) => /dropped|stop/.test(instead)).length;
  if (closing === 0) return undefined;
  return `note: the kernel of this host refuses ${plural(closing, "rule or set", "rules or sets")}, and drops what policy may allow: calicoctl doctor\n`;
}
