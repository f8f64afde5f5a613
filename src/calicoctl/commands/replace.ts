// calicoctl replace: update what must be there. Unlike its siblings it counts what it tried, not what worked, and
// tells only the last error: scripts know it so.
import { replace, settle } from "../actions.ts";
import { demandOf, openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { readResources } from "../input/resources.ts";
import { progressOf } from "../progress.ts";
import { forEachResource } from "../results.ts";

export async function run(call: Call): Promise<number> {
  const { world } = call;
  const inputs = await readResources(call);
  if (inputs.length === 0) {
    world.out("No resources specified\n");
    return 0;
  }
  await using store = await openChecked(call, demandOf(inputs.length));
  const { total, done, kind, faults } = await forEachResource(
    inputs,
    (input) => replace(store, settle(input, call.flags)),
    progressOf(world, "replaced"),
  );
  const named = kind === undefined ? "" : `'${kind}' `;
  const last = faults.at(-1);
  if (last === undefined) {
    world.out(`Successfully replaced ${total} ${named}resource(s)\n`);
    return 0;
  }
  world.out(`Partial success: replaced the first ${done + faults.length} out of ${total} ${named}resources:\n`);
  world.err(`Hit error: ${last}\n`);
  return 1;
}
