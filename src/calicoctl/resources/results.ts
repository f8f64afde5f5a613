// Runs an operation on many resources and reports the result. Counts go to standard output and errors to standard error, each
// with the place of its resource. The texts are those of Calico, because scripts may parse them.
import { Unavailable, ValidationFailed } from "../../datastore/index.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";
import { describeFaults, type InputResource } from "../input/resources.ts";

export interface Results {
  /** The number of resources in the input. */
  readonly total: number;
  readonly done: number;
  readonly faults: readonly string[];
  /** The kind of the resources, if all have the same. */
  readonly kind: string | undefined;
}

/** Runs `action` on each resource in order. Continues after an error, unless the datastore does not answer. */
export async function forEachResource(
  inputs: readonly InputResource[],
  action: (input: InputResource) => Promise<unknown>,
  progress: (done: number, total: number) => void = () => {},
): Promise<Results> {
  const faults: string[] = [];
  let done = 0;
  for (const [i, input] of inputs.entries()) {
    try {
      await action(input);
      done++;
    } catch (error) {
      const remaining = inputs.length - i - 1;
      const isAborted = error instanceof Unavailable && remaining > 0;
      faults.push(describe(error, input) + (isAborted ? `; ${remaining} more resource(s) not attempted` : ""));
      if (isAborted) break;
    }
    progress(i + 1, inputs.length);
  }
  const kinds = new Set(inputs.map((input) => input.kind));
  return {
    total: inputs.length,
    done,
    faults,
    kind: kinds.size === 1 ? [...kinds][0] : undefined,
  };
}

/** Returns an error as one line, with the places of invalid fields. */
export function describe(error: unknown, input?: InputResource): string {
  if (error instanceof ValidationFailed && input !== undefined && error.faults.length > 0)
    return `error with field ${describeFaults(input.origin, error.faults)}`;
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n").join(" ");
}

/** Prints the result of `create`, `apply` and `validate`, and returns the exit code. */
export function reportAll(
  io: CommandIo,
  results: Results,
  verb: { readonly do: string; readonly done: string },
): number {
  const { total, done, faults } = results;
  if (total === 0) {
    io.out("No resources specified\n");
    return 0;
  }
  const kind = results.kind === undefined ? "" : `'${results.kind}' `;
  if (faults.length === 0) {
    io.out(`Successfully ${verb.done} ${done} ${kind}resource(s)\n`);
    return 0;
  }
  const list = `[${faults.join("; ")}]`;
  if (done === 0) {
    const what = total === 1 ? `${kind}resource` : `any ${kind}resources`;
    io.err(`Failed to ${verb.do} ${what}: ${list}\n`);
    return 1;
  }
  if (done > faults.length)
    io.out(`Partial success: ${verb.done} the first ${done} out of ${total} ${kind}resources:\n`);
  io.err(`Hit error: ${list}\n`);
  return 1;
}
