// Implements `calicoctl validate`, which reports the errors that a write would report, without a datastore.
import { ValidationFailed } from "../../datastore/index.ts";
import { loadSchemas } from "../../model/index.ts";
import { resolveNamespace } from "../resources/actions.ts";
import type { Call } from "../table/flags.ts";
import type { writeGrammar } from "../table/resources.ts";
import { readResources } from "../input/resources.ts";
import { forEachResource, reportAll } from "../resources/results.ts";

export async function run(call: Call<typeof writeGrammar>): Promise<number> {
  const inputs = await readResources(call);
  const { validateResource } = await loadSchemas();
  const results = await forEachResource(inputs, async (input) => {
    const resolved = resolveNamespace(input, call.flags);
    const checked = await validateResource(resolved, { mode: "create" });
    if (!checked.ok) throw new ValidationFailed(checked.faults);
  });
  return reportAll(call.io, results, { do: "validate", done: "validated" });
}
