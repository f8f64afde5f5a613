// calicoctl datastore migrate unlock: agents go on.
import { openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { setReady } from "../migrate.ts";

export async function run(call: Call): Promise<number> {
  await using store = await openChecked(call);
  await setReady(store, true);
  call.world.out("Datastore unlocked.\n");
  return 0;
}
