// calicoctl validate: what a write would say, without a datastore.
import { ValidationFailed } from "../../datastore/index.ts";
import { loadSchemas } from "../../model/index.ts";
import { settle } from "../actions.ts";
import type { Call } from "../command.ts";
import { readResources } from "../input/resources.ts";
import { forEachResource, reportAll } from "../results.ts";

export async function run(call: Call): Promise<number> {
  const inputs = await readResources(call);
  const { validateResource } = await loadSchemas();
  const results = await forEachResource(inputs, async (input) => {
    const settled = settle(input, call.flags);
    const checked = await validateResource(settled, { mode: "create" });
    if (!checked.ok) throw new ValidationFailed(checked.faults);
  });
  return reportAll(call.world, results, { do: "validate", done: "validated" });
}
