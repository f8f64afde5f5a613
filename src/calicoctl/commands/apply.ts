// calicoctl apply: create what is not there, update what is.
import { apply, settle } from "../actions.ts";
import { demandOf, openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { readResources } from "../input/resources.ts";
import { progressOf } from "../progress.ts";
import { forEachResource, reportAll } from "../results.ts";

export async function run(call: Call): Promise<number> {
  const inputs = await readResources(call);
  await using store = await openChecked(call, { ...demandOf(inputs.length), mayCreate: true });
  const results = await forEachResource(
    inputs,
    (input) => apply(store, settle(input, call.flags)),
    progressOf(call.world, "applied"),
  );
  return reportAll(call.world, results, { do: "apply", done: "applied" });
}
