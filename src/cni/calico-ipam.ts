// Starts the program `calico-ipam`.
import { exitNow } from "../kernel/index.ts";
import { runPlugin } from "./plugin.ts";

export async function main(argv: readonly string[]): Promise<number> {
  return exitNow(await runPlugin("calico-ipam", argv)); // without waiting until open connections are closed
}
