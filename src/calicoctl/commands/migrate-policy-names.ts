// calicoctl datastore migrate-policy-names: policies that older releases stored as `default.<name>` move to their own
// names.
import { migratePolicyNames } from "../../datastore/index.ts";
import { openChecked } from "../client.ts";
import type { Call } from "../command.ts";

export async function run(call: Call): Promise<number> {
  await using store = await openChecked(call, { requests: "many" });
  const moved = await migratePolicyNames(store.datastore);
  call.world.out(
    moved === 0 ? "All policies have their own names already.\n" : `Successfully migrated ${moved} policies\n`,
  );
  return 0;
}
