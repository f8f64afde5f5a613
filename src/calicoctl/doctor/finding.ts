// What the doctor says about one fault: what is wrong, why, how we know, and what cures it.

export interface Finding {
  /** Stable, for scripts: `dual-nic`, `duplicate-address`, … */
  readonly id: string;
  /** An error breaks something now; a warning will, or may. */
  readonly severity: "error" | "warning";
  /** What it is about, such as `Node(node1)` or `host node1`. */
  readonly object: string;
  readonly problem: string;
  readonly cause: string;
  readonly evidence: readonly string[];
  readonly fix: string;
  /** The parts of the story that a program may want, where the fault has them. */
  readonly node?: string;
  readonly interface?: string;
  readonly address?: string;
  readonly peer?: string;
  /** `NAME=value`, or a field of a resource. */
  readonly setting?: string;
}

/** `a`, `a and b`, `a, b and 3 more`. */
export function listed(names: readonly string[], most = 4): string {
  const shown = names.length > most ? [...names.slice(0, most - 1), `${names.length - most + 1} more`] : names;
  if (shown.length < 2) return shown.join("");
  return `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

/** The command that gives a resource these values. */
export const patch = (kind: string, name: string, spec: object): string =>
  `calicoctl patch ${kind} ${name} -p '${JSON.stringify({ spec })}'`;
