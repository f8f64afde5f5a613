// Implements `calicoctl datastore migrate unlock`, after which agents continue.
import { openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { datastoreGrammar } from "../../table/datastore.ts";
import { setReady } from "./shared.ts";

export async function run(call: Call<typeof datastoreGrammar>): Promise<number> {
  await using store = await openChecked(call);
  await setReady(store, true);
  call.io.out("Datastore unlocked.\n");
  return 0;
}
