// Implements `calico lab down`.
import { down } from "../down.ts";
import { listLabs } from "../folder.ts";
import { labTitle } from "../next-steps.ts";
import type { LabCall, noGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { requestedLab } from "./requested-lab.ts";

export async function run({ flags }: LabCall<typeof noGrammar>): Promise<number> {
  const name = requestedLab(flags);
  const terminal = openTerminal();
  const others = listLabs().filter((each) => each !== name);
  const { existed } = await down(name, terminal);
  const rest = others.length === 0 ? "" : `; existing labs: ${others.join(", ")} (--name)`;
  terminal.line(existed ? `removed ${labTitle(name)}` : `lab ${name} does not exist${rest}`);
  return 0;
}
