// calicoctl datastore migrate lock: all agents stop until `unlock`.
import { openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { setReady } from "../migrate.ts";

export async function run(call: Call): Promise<number> {
  await using store = await openChecked(call);
  await store.ensureInitialized();
  await setReady(store, false);
  call.world.out("Datastore locked.\n");
  return 0;
}
