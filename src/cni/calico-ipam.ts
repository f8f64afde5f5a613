// The role `calico-ipam`.
import { runPlugin } from "./plugin.ts";

export async function main(argv: readonly string[]): Promise<number> {
  process.exit(await runPlugin("calico-ipam", argv)); // open connections need not be waited for
}
