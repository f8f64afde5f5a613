// calicoctl delete: by kind and names, or whatever files name.
import { NotFound } from "../../datastore/index.ts";
import { remove, settle } from "../actions.ts";
import { demandOf, openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { readResources } from "../input/resources.ts";
import { describe } from "../results.ts";
import { resourcesFromWords } from "../words.ts";

export async function run(call: Call): Promise<number> {
  const { world, flags } = call;
  const targets = flags.has("filename") ? await readResources(call) : resourcesFromWords(call, { atLeastOne: true });
  if (targets.length === 0) {
    world.out("No resources specified\n");
    return 0;
  }
  await using store = await openChecked(call, demandOf(targets.length));
  const faults: { readonly kind: string; readonly reason: string }[] = [];
  let missing = 0;
  for (const target of targets)
    try {
      await remove(store, settle(target, flags));
    } catch (error) {
      if (flags.has("skip-not-exists") && error instanceof NotFound) missing++;
      else faults.push({ kind: target.kind, reason: describe(error) });
    }
  const kinds = new Set(targets.map((target) => target.kind));
  const named = kinds.size === 1 ? `'${[...kinds][0]}' ` : "";
  const done = targets.length - faults.length - missing;
  const skipped = missing === 0 ? "" : `; ${missing} did not exist`;
  if (done + missing > 0) world.out(`Successfully deleted ${done} ${named}resource(s)${skipped}\n`);
  for (const { kind, reason } of faults) world.err(`Failed to delete '${kind}' resource: ${reason}\n`);
  return faults.length === 0 ? 0 : 1;
}
