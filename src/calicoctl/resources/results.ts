// What a command on many resources tells at its end. Counts go to standard output, faults to standard error, each
// naming where its resource came from; the wording is what scripts know.
import { Unavailable, ValidationFailed } from "../../datastore/index.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";
import { describeFaults, type InputResource } from "../input/resources.ts";

export interface Results {
  /** Resources the command was about. */
  readonly total: number;
  readonly done: number;
  readonly faults: readonly string[];
  /** The kind of all of them, when there is only one. */
  readonly kind: string | undefined;
}

/** Does something to each resource in turn; one that fails is remembered, the others go on while the datastore answers. */
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
      const left = inputs.length - i - 1;
      const isLost = error instanceof Unavailable && left > 0;
      faults.push(describe(error, input) + (isLost ? `; ${left} more resource(s) not tried` : ""));
      if (isLost) break;
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

/** One line: what is wrong with the resource, and for fields where they stand. */
export function describe(error: unknown, input?: InputResource): string {
  if (error instanceof ValidationFailed && input !== undefined && error.faults.length > 0)
    return `error with field ${describeFaults(input.origin, error.faults)}`;
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n").join(" ");
}

/** `created`, `applied`, `validated`: the end of a command whose failures are counted apart from what it did. */
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
