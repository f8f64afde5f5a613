// calicoctl apply: create what is not there, update what is.
import type { Resource } from "../../model/index.ts";
import { apply, settle } from "../actions.ts";
import { demandOf, openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { readResources } from "../input/resources.ts";
import { progressOf } from "../progress.ts";
import { forEachResource, reportAll } from "../results.ts";
import { warnOfWritten } from "../write-warnings.ts";

export async function run(call: Call): Promise<number> {
  const inputs = await readResources(call);
  await using store = await openChecked(call, { ...demandOf(inputs.length), mayCreate: true });
  const written: Resource[] = [];
  const results = await forEachResource(
    inputs,
    async (input) => written.push(await apply(store, settle(input, call.flags))),
    progressOf(call.world, "applied"),
  );
  await warnOfWritten(call.world, store, written);
  return reportAll(call.world, results, { do: "apply", done: "applied" });
}
