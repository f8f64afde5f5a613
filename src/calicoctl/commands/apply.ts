// Implements `calicoctl apply`, which creates resources, or updates those that exist.
import type { Resource } from "../../model/index.ts";
import { apply, resolveNamespace } from "../resources/actions.ts";
import { optionsFor, openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { writeGrammar } from "../table/resources.ts";
import { readResources } from "../input/resources.ts";
import { progressOf } from "../command-line/progress.ts";
import { forEachResource, reportAll } from "../resources/results.ts";
import { warnOfWritten } from "../resources/write-warnings.ts";

export async function run(call: Call<typeof writeGrammar>): Promise<number> {
  const inputs = await readResources(call);
  await using store = await openChecked(call, { ...optionsFor(inputs.length), mayCreate: true });
  const written: Resource[] = [];
  const results = await forEachResource(
    inputs,
    async (input) => written.push(await apply(store, resolveNamespace(input, call.flags))),
    progressOf(call.io, "applied"),
  );
  await warnOfWritten(call.io, store, written);
  return reportAll(call.io, results, { do: "apply", done: "applied" });
}
