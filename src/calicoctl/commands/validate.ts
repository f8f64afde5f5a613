// calicoctl validate: what a write would say, without a datastore.
import { ValidationFailed } from "../../datastore/index.ts";
import { loadSchemas } from "../../model/index.ts";
import { settle } from "../resources/actions.ts";
import type { Call } from "../table/flags.ts";
import type { writeGrammar } from "../table/resources.ts";
import { readResources } from "../input/resources.ts";
import { forEachResource, reportAll } from "../resources/results.ts";

export async function run(call: Call<typeof writeGrammar>): Promise<number> {
  const inputs = await readResources(call);
  const { validateResource } = await loadSchemas();
  const results = await forEachResource(inputs, async (input) => {
    const settled = settle(input, call.flags);
    const checked = await validateResource(settled, { mode: "create" });
    if (!checked.ok) throw new ValidationFailed(checked.faults);
  });
  return reportAll(call.io, results, { do: "validate", done: "validated" });
}
