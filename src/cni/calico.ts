// The role `calico` when a runtime calls it. The service of this node does the work when it is there; then this process
// loads next to nothing: not even `node:fs`, which takes longer to load than the rest takes altogether.
import { bindCalls, exitNow, readStandardInput, writeStandardOutput } from "../kernel/index.ts";
import { askService } from "./service-client.ts";
import { appendTimes, type MarkStep, noTimes, type StepTime, stepTimes, TIMES_VARIABLE } from "./step-times.ts";

export async function main(argv: readonly string[]): Promise<number> {
  const file = process.env[TIMES_VARIABLE] ?? "";
  if (file === "") return exitNow(await run(argv, noTimes)); // open connections need not be waited for
  const { mark, times } = stepTimes();
  mark("runtime started");
  const code = await run(argv, mark);
  await appendTimes(file, times as StepTime[]);
  return exitNow(code);
}

async function run(argv: readonly string[], mark: MarkStep): Promise<number> {
  const command = process.env["CNI_COMMAND"] ?? "";
  let input: string | undefined;
  if (argv.length === 0 && ["ADD", "DEL", "CHECK", "STATUS", "GC"].includes(command)) {
    bindCalls([
      "read",
      "write",
      "open",
      "socket",
      "connect",
      "setsockopt",
      "mmap",
      "sendmsg",
      "shutdown",
      "recv",
      "_exit",
    ]);
    input = tryRead();
    const reply = input === undefined ? undefined : askService(process.env, input, mark);
    if (reply !== undefined) {
      writeStandardOutput(reply.stdout);
      return reply.exitCode;
    }
  }
  const { runPlugin } = await import("./plugin.ts");
  return runPlugin("calico", argv, { mark, ...(input === undefined ? {} : { input }) });
}

function tryRead(): string | undefined {
  try {
    return readStandardInput();
  } catch {
    return undefined; // the plugin tries again and says what is wrong
  }
}
