// Starts the program `calico`, which a container runtime calls. If the node agent's CNI service handles the request, this
// process loads only the client: no `node:` modules and no datastore.
import { exitNow, readStandardInput } from "../kernel/index.ts";
import { callService, type ServiceFailure } from "./service/client.ts";
import { appendTimes, noTimes, stepTimes, TIMES_VARIABLE } from "./step-times.ts";

const SERVED = ["ADD", "DEL", "CHECK", "STATUS", "GC"];

export async function main(argv: readonly string[]): Promise<number> {
  const file = process.env[TIMES_VARIABLE] ?? "";
  const { mark, times } = file === "" ? { mark: noTimes, times: [] } : stepTimes();
  mark("runtime started");
  let input: string | undefined;
  let outcome: number | ServiceFailure | undefined;
  if (argv.length === 0 && SERVED.includes(process.env["CNI_COMMAND"] ?? "")) {
    input = tryReadInput();
    if (input !== undefined) outcome = callService(input, process.env, mark);
  }
  // Before the first `await`: the runtime's event loop takes 1.4 ms to start (of 6.5 ms from exec to exit).
  if (typeof outcome === "number" && file === "") return exitNow(outcome);
  const code = typeof outcome === "number" ? outcome : await runInProcess(argv, input, outcome, mark);
  if (file !== "") await appendTimes(file, process.env, times);
  return exitNow(code); // without waiting until open connections are closed
}

async function runInProcess(
  argv: readonly string[],
  input: string | undefined,
  serviceFailure: ServiceFailure | undefined,
  mark: typeof noTimes,
): Promise<number> {
  const { runPlugin } = await import("./plugin.ts");
  return runPlugin("calico", argv, { mark, serviceFailure, input });
}

/** @returns undefined if standard input cannot be read; the plugin tries again and reports the error */
function tryReadInput(): string | undefined {
  try {
    return readStandardInput();
  } catch {
    return undefined;
  }
}
