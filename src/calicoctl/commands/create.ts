// Implements `calicoctl create`, which creates resources that must not exist yet.
import { AlreadyExists } from "../../datastore/index.ts";
import type { Resource } from "../../model/index.ts";
import { create, resolveNamespace } from "../resources/actions.ts";
import { optionsFor, openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { createGrammar } from "../table/resources.ts";
import { readResources } from "../input/resources.ts";
import { progressOf } from "../command-line/progress.ts";
import { forEachResource, reportAll } from "../resources/results.ts";
import { warnOfWritten } from "../resources/write-warnings.ts";

export async function run(call: Call<typeof createGrammar>): Promise<number> {
  const inputs = await readResources(call);
  await using store = await openChecked(call, { ...optionsFor(inputs.length), mayCreate: true });
  const skipExists = call.flags["skip-exists"];
  const written: Resource[] = [];
  const results = await forEachResource(
    inputs,
    async (input) => {
      try {
        written.push(await create(store, resolveNamespace(input, call.flags)));
      } catch (error) {
        if (!(skipExists && error instanceof AlreadyExists)) throw error;
      }
    },
    progressOf(call.io, "created"),
  );
  await warnOfWritten(call.io, store, written);
  return reportAll(call.io, results, { do: "create", done: "created" });
}
