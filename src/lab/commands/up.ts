// Implements `calico lab up`: creates a lab, or resumes and repairs one.
import { LabFolder } from "../folder.ts";
import { labTitle, nameFlag, nextSteps } from "../next-steps.ts";
import { resolveLabOptions } from "../options.ts";
import type { LabCall, upGrammar } from "../table.ts";
import { counted, openTerminal } from "../terminal.ts";
import { up } from "../up.ts";
import { requestedLab } from "./requested-lab.ts";

export async function run({ flags }: LabCall<typeof upGrammar>): Promise<number> {
  const started = performance.now();
  const name = requestedLab(flags);
  const terminal = openTerminal();
  process.once("SIGINT", () => {
    const flag = nameFlag(name);
    terminal.line(`\ninterrupted: resume with calico lab up${flag}, remove the lab with calico lab down${flag}`);
    process.exit(130);
  });
  const lab = await up(resolveLabOptions({ ...flags, name }, new LabFolder(name).read()?.options), terminal);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const size = `${counted(lab.plan.nodes.length, "node")}, ${counted(lab.pods.length, "pod")}`;
  terminal.line(`${labTitle(name)} is up: ${size}, ${seconds} s\n`);
  terminal.line(nextSteps(lab));
  return 0;
}
