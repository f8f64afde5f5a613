// The role `calico` when a runtime calls it. The service of this node does the work when it is there; then this process
// loads next to nothing.
import { readFileSync, writeSync } from "node:fs";
import { exitNow } from "../kernel/index.ts";
import { askService } from "./service-client.ts";

export async function main(argv: readonly string[]): Promise<number> {
  return exitNow(await run(argv)); // open connections need not be waited for
}

async function run(argv: readonly string[]): Promise<number> {
  const command = process.env["CNI_COMMAND"] ?? "";
  let input: string | undefined;
  if (argv.length === 0 && ["ADD", "DEL", "CHECK", "STATUS", "GC"].includes(command)) {
    input = tryRead();
    const reply = input === undefined ? undefined : askService(process.env, input);
    if (reply !== undefined) {
      writeSync(1, reply.stdout);
      return reply.exitCode;
    }
  }
  const { runPlugin } = await import("./plugin.ts");
  return runPlugin("calico", argv, input);
}

function tryRead(): string | undefined {
  try {
    return readFileSync(0, "utf8");
  } catch {
    return undefined; // the plugin tries again and says what is wrong
  }
}
