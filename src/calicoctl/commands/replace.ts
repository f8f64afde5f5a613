// calicoctl replace: update what must be there. Unlike its siblings it counts what it tried, not what worked, and
// tells only the last error: scripts know it so.
import type { Resource } from "../../model/index.ts";
import { replace, settle } from "../resources/actions.ts";
import { demandOf, openChecked } from "../resources/client.ts";
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
  await using store = await openChecked(call, demandOf(inputs.length));
  const written: Resource[] = [];
  let tried = 0;
  const { total, kind, faults } = await forEachResource(
    inputs,
    async (input) => {
      const resource = settle(input, call.flags); // one in a wrong namespace is not even tried
      tried++;
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
  if (tried === 0) {
    io.err(`Failed to replace ${total === 1 ? `${named}resource` : `any ${named}resources`}: ${last}\n`);
    return 1;
  }
  io.out(`Partial success: replaced the first ${tried} out of ${total} ${named}resources:\n`);
  io.err(`Hit error: ${last}\n`);
  return 1;
}
