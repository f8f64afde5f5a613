// Implements `calicoctl delete`, which deletes resources by kind and name, or those of files.
import { NotFound } from "../../datastore/index.ts";
import type { Resource } from "../../model/index.ts";
import { remove, resolveNamespace } from "../resources/actions.ts";
import { optionsFor, openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { deleteGrammar } from "../table/resources.ts";
import { readResources } from "../input/resources.ts";
import { describe } from "../resources/results.ts";
import { warnOfDeleted } from "../resources/write-warnings.ts";
import { resourcesFromWords } from "../command-line/named-resources.ts";

export async function run(call: Call<typeof deleteGrammar>): Promise<number> {
  const { io, flags } = call;
  const targets =
    flags.filename !== undefined ? await readResources(call) : resourcesFromWords(call.args, { atLeastOne: true });
  if (targets.length === 0) {
    io.out("No resources specified\n");
    return 0;
  }
  await using store = await openChecked(call, optionsFor(targets.length));
  const faults: { readonly kind: string; readonly reason: string }[] = [];
  const deleted: Resource[] = [];
  let missing = 0;
  for (const target of targets)
    try {
      deleted.push(await remove(store, resolveNamespace(target, flags)));
    } catch (error) {
      if (flags["skip-not-exists"] && error instanceof NotFound) missing++;
      else faults.push({ kind: target.kind, reason: describe(error) });
    }
  await warnOfDeleted(io, store, deleted);
  const kinds = new Set(targets.map((target) => target.kind));
  const named = kinds.size === 1 ? `'${[...kinds][0]}' ` : "";
  const done = targets.length - faults.length - missing;
  const skipped = missing === 0 ? "" : `; ${missing} did not exist`;
  if (done + missing > 0) io.out(`Successfully deleted ${done} ${named}resource(s)${skipped}\n`);
  for (const { kind, reason } of faults) io.err(`Failed to delete '${kind}' resource: ${reason}\n`);
  return faults.length === 0 ? 0 : 1;
}
