// The role `calico-ipam`.
import { exitNow } from "../kernel/index.ts";
import { runPlugin } from "./plugin.ts";

export async function main(argv: readonly string[]): Promise<number> {
  return exitNow(await runPlugin("calico-ipam", argv)); // open connections need not be waited for
}
