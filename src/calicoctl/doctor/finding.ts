// Defines a finding of doctor (problem, cause, evidence and fix), and formats parts of its text.

export interface Finding {
  /** Stable, so that scripts can rely on it: `dual-nic`, `duplicate-address`, … */
  readonly id: string;
  /** An error breaks something now; a warning will or may do so later. */
  readonly severity: "error" | "warning";
  /** The resource or host that has the problem, such as `Node(node1)` or `host node1`. */
  readonly object: string;
  readonly problem: string;
  readonly cause: string;
  readonly evidence: readonly string[];
  readonly fix: string;
  /** These fields repeat parts of the text for programs, if the problem has them. */
  readonly node?: string;
  readonly interface?: string;
  readonly address?: string;
  readonly peer?: string;
  /** `NAME=value`, or a field of a resource. */
  readonly setting?: string;
}

/** Returns `a`, `a and b`, or `a, b and 3 more`. */
export function formatList(names: readonly string[], limit = 4): string {
  const shown = names.length > limit ? [...names.slice(0, limit - 1), `${names.length - limit + 1} more`] : names;
  if (shown.length < 2) return shown.join("");
  return `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

/** Returns the command that sets these fields of a resource. */
export const patchCommand = (kind: string, name: string, spec: object): string =>
  `calicoctl patch ${kind} ${name} -p '${JSON.stringify({ spec })}'`;
