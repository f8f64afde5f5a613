// Implements `calicoctl datastore migrate-policy-names`, which renames policies that older releases stored as
// `default.<name>`.
import { migratePolicyNames } from "../../../datastore/index.ts";
import { describeError } from "../../../lib/log/log.ts";
import { openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { datastoreGrammar } from "../../table/datastore.ts";

export async function run(call: Call<typeof datastoreGrammar>): Promise<number> {
  await using store = await openChecked(call, { requests: "many" });
  const { moved, failures } = await migratePolicyNames(store.datastore);
  for (const { policy, error } of failures) call.io.err(`${policy} was not renamed: ${describeError(error)}\n`);
  if (moved > 0) call.io.out(`Successfully migrated ${moved} policies\n`);
  else if (failures.length === 0) call.io.out("All policies already have their own names.\n");
  return failures.length === 0 ? 0 : 1;
}
