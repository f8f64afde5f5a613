// Implements `calicoctl datastore migrate lock`, which makes all agents wait until `unlock`.
import { openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { datastoreGrammar } from "../../table/datastore.ts";
import { setReady } from "./shared.ts";

export async function run(call: Call<typeof datastoreGrammar>): Promise<number> {
  await using store = await openChecked(call);
  await store.ensureInitialized();
  await setReady(store, false);
  call.io.out("Datastore locked.\n");
  return 0;
}
