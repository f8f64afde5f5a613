// The role `calico` when a runtime calls it. The service of this node does the work when it is there; then this process
// loads next to nothing: not even `node:fs`, which takes longer to load than the rest takes altogether.
import { BriefCalls, exitNow } from "../kernel/index.ts";
import { askService, type ServiceFailure } from "./service-client.ts";
import { appendTimes, type MarkStep, noTimes, stepTimes, TIMES_VARIABLE } from "./step-times.ts";

export async function main(argv: readonly string[]): Promise<number> {
  const file = process.env[TIMES_VARIABLE] ?? "";
  if (file === "") return run(argv, noTimes);
  const { mark, times } = stepTimes();
  mark("runtime started");
  return run(argv, mark, () => appendTimes(file, process.env, times));
}

/** Never comes back: open connections need not be waited for. */
async function run(argv: readonly string[], mark: MarkStep, atEnd?: () => Promise<void>): Promise<number> {
  const command = process.env["CNI_COMMAND"] ?? "";
  let input: string | undefined;
  let serviceFailure: ServiceFailure | undefined;
  if (argv.length === 0 && ["ADD", "DEL", "CHECK", "STATUS", "GC"].includes(command)) {
    const calls = BriefCalls.open();
    const isBroken = calls?.isInputMarked() === true;
    if (calls?.readInput() === true) {
      const outcome = isBroken ? "broken" : askService(calls, process.env, mark);
      if (typeof outcome === "number") {
        if (atEnd !== undefined) await atEnd();
        return calls.exit(outcome);
      }
      input = calls.input;
      serviceFailure = outcome;
    }
  }
  const { runPlugin } = await import("./plugin.ts");
  const code = await runPlugin("calico", argv, {
    mark,
    ...(serviceFailure === undefined ? {} : { serviceFailure }),
    ...(input === undefined ? {} : { input }),
  });
  if (atEnd !== undefined) await atEnd();
  return exitNow(code);
}
