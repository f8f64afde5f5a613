// Finds rules, sets and features that the kernel of this host rejects, as reported by Felix in a file.
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import type { HostFacts } from "./facts.ts";
import { type Finding, plural } from "./finding.ts";

/** An item of the file, without the fields that are not used here. */
export interface RejectedPart {
  readonly kind: string;
  readonly where: string;
  readonly setting?: string;
  readonly instead: string;
  readonly error?: string;
}

const REJECTED_FILE = "/var/run/calico/programmed/rejected.json";

/** Returns an empty list if the file does not exist: then the kernel rejects nothing. */
export function readRejected(path = REJECTED_FILE): readonly RejectedPart[] {
  const text = readFileIfExists(path);
  if (text === undefined) return [];
  try {
    const parts: unknown = JSON.parse(text);
    return Array.isArray(parts) ? parts.flatMap(parsePart) : [];
  } catch {
    return [];
  }
}

function parsePart(part: unknown): RejectedPart[] {
  if (typeof part !== "object" || part === null) return [];
  const text = (key: string): string | undefined => {
    const value = (part as Readonly<Record<string, unknown>>)[key];
    return typeof value === "string" ? value : undefined;
  };
  const [setting, error] = [text("setting"), text("error")];
  return [
    {
      kind: text("kind") ?? "rule",
      where: text("where") ?? "unknown location",
      instead: text("instead") ?? "",
      setting,
      error,
    },
  ];
}

const MAX_EVIDENCE = 5;

/** One finding for all items that one setting requires. */
export function* rejectedByKernel(host: HostFacts): Generator<Finding> {
  for (const [setting, parts] of Map.groupBy(host.rejected, (part) => part.setting ?? "")) {
    const count = (kind: string) => parts.filter((part) => part.kind === kind).length;
    const what = [
      ...(count("rule") > 0 ? [plural(count("rule"), "rule")] : []),
      ...(count("set") > 0 ? [plural(count("set"), "IP set")] : []),
      ...parts.filter(({ kind }) => kind === "feature").map(({ where }) => where),
    ].join(" and ");
    const dropsTraffic = parts.some(dropsPackets);
    const shown = parts
      .slice(0, MAX_EVIDENCE)
      .map(({ where, instead, error }) => [where, ...(error === undefined ? [] : [error]), instead].join(": "));
    yield {
      id: "rejected-by-kernel",
      severity: dropsTraffic ? "error" : "warning",
      object: `host ${host.node}`,
      problem: `the kernel of ${host.node} rejects ${what}${dropsTraffic ? ": traffic that policy may allow is dropped" : ""}`,
      cause:
        setting === ""
          ? "fallbacks are programmed instead, which accept no additional packet; all other rules are in force"
          : `required by ${setting}; fallbacks are programmed instead, which accept no additional packet; all other rules are in force`,
      evidence: parts.length > shown.length ? [...shown, `and ${parts.length - shown.length} more`] : shown,
      fix:
        setting === ""
          ? "find the rules in the log of calico-node, and change the policy or the kernel; calico-node retries without a restart"
          : "load the kernel module, or unset the setting; calico-node retries rules without a restart",
      node: host.node,
      ...(setting === "" ? {} : { setting }),
    };
  }
}

const dropsPackets = ({ instead }: RejectedPart): boolean => instead.includes("dropped");

/** A note for `calicoctl explain`: the kernel may drop packets that policy allows. */
export function rejectedNote(parts: readonly RejectedPart[]): string | undefined {
  const count = parts.filter(dropsPackets).length;
  if (count === 0) return undefined;
  return `note: the kernel of this host rejects ${plural(count, "rule or set", "rules or sets")}, and may drop packets that policy allows: run calicoctl doctor\n`;
}
