// The role `calico` when a runtime calls it.
import { runPlugin } from "./plugin.ts";

export async function main(argv: readonly string[]): Promise<number> {
  process.exit(await runPlugin("calico", argv)); // open connections need not be waited for
}
