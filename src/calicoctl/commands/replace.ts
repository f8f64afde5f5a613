// Implements `calicoctl replace`, which updates resources that must exist. As in Calico, and unlike `create` and `apply`, its
// message counts the attempted resources, not the successful ones, and contains only the last error.
import type { Resource } from "../../model/index.ts";
import { replace, resolveNamespace } from "../resources/actions.ts";
import { optionsFor, openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { writeGrammar } from "../table/resources.ts";
import { readResources } from "../input/resources.ts";
import { progressOf } from "../command-line/progress.ts";
import { forEachResource } from "../resources/results.ts";
import { warnOfWritten } from "../resources/write-warnings.ts";

export async function run(call: Call<typeof writeGrammar>): Promise<number> {
  const { io } = call;
  const inputs = await readResources(call);
  if (inputs.length === 0) {
    io.out("No resources specified\n");
    return 0;
  }
  await using store = await openChecked(call, optionsFor(inputs.length));
  const written: Resource[] = [];
  let attempted = 0;
  const { total, kind, faults } = await forEachResource(
    inputs,
    async (input) => {
      const resource = resolveNamespace(input, call.flags); // an error here is not counted as an attempt
      attempted++;
      written.push(await replace(store, resource));
    },
    progressOf(io, "replaced"),
  );
  await warnOfWritten(io, store, written);
  const named = kind === undefined ? "" : `'${kind}' `;
  const last = faults.at(-1);
  if (last === undefined) {
    io.out(`Successfully replaced ${total} ${named}resource(s)\n`);
    return 0;
  }
  if (attempted === 0) {
    io.err(`Failed to replace ${total === 1 ? `${named}resource` : `any ${named}resources`}: ${last}\n`);
    return 1;
  }
  io.out(`Partial success: replaced the first ${attempted} out of ${total} ${named}resources:\n`);
  io.err(`Hit error: ${last}\n`);
  return 1;
}
