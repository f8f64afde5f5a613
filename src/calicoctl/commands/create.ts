// calicoctl create: resources that must not exist yet.
import { AlreadyExists } from "../../datastore/index.ts";
import type { Resource } from "../../model/index.ts";
import { create, settle } from "../actions.ts";
import { demandOf, openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { readResources } from "../input/resources.ts";
import { progressOf } from "../progress.ts";
import { forEachResource, reportAll } from "../results.ts";
import { warnOfWritten } from "../write-warnings.ts";

export async function run(call: Call): Promise<number> {
  const inputs = await readResources(call);
  await using store = await openChecked(call, { ...demandOf(inputs.length), mayCreate: true });
  const skipExists = call.flags.has("skip-exists");
  const written: Resource[] = [];
  const results = await forEachResource(
    inputs,
    async (input) => {
      try {
        written.push(await create(store, settle(input, call.flags)));
      } catch (error) {
        if (!(skipExists && error instanceof AlreadyExists)) throw error;
      }
    },
    progressOf(call.world, "created"),
  );
  await warnOfWritten(call.world, store, written);
  return reportAll(call.world, results, { do: "create", done: "created" });
}
