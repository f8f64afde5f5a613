// The program `calico`, called by a container runtime. If the node agent's CNI service answers, it does the work, and this
// process loads nothing but the client: no `node:` modules and no datastore.
import { exitNow, readStandardInput } from "../kernel/index.ts";
import { callService, type ServiceFailure } from "./service-client.ts";
import { appendTimes, type MarkStep, noTimes, stepTimes, TIMES_VARIABLE } from "./step-times.ts";

export async function main(argv: readonly string[]): Promise<number> {
  const file = process.env[TIMES_VARIABLE] ?? "";
  if (file === "") return exitNow(await run(argv, noTimes));
  const { mark, times } = stepTimes();
  mark("runtime started");
  const code = await run(argv, mark);
  await appendTimes(file, process.env, times);
  return exitNow(code); // without waiting until open connections are closed
}

async function run(argv: readonly string[], mark: MarkStep): Promise<number> {
  const command = process.env["CNI_COMMAND"] ?? "";
  let input: string | undefined;
  let serviceFailure: ServiceFailure | undefined;
  if (argv.length === 0 && ["ADD", "DEL", "CHECK", "STATUS", "GC"].includes(command)) {
    input = tryReadInput();
    if (input !== undefined) {
      const outcome = callService(input, process.env, mark);
      if (typeof outcome === "number") return outcome;
      serviceFailure = outcome;
    }
  }
  const { runPlugin } = await import("./plugin.ts");
  return runPlugin("calico", argv, {
    mark,
    ...(serviceFailure === undefined ? {} : { serviceFailure }),
    ...(input === undefined ? {} : { input }),
  });
}

/** @returns undefined if standard input cannot be read; the plugin tries again and reports the error */
function tryReadInput(): string | undefined {
  try {
    return readStandardInput();
  } catch {
    return undefined;
  }
}
