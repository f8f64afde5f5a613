// Implements `calico lab apply`: runs calicoctl apply on the first node.
import { readFileSync } from "node:fs";
import { Lab } from "../lab.ts";
import { InvalidRequest } from "../options.ts";
import type { applyGrammar, LabCall } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { requestedLab } from "./requested-lab.ts";

export function run({ flags }: LabCall<typeof applyGrammar>): number {
  const lab = Lab.open(requestedLab(flags));
  openTerminal().line(lab.calicoctl(["apply", "-f", "-"], readText(flags.filename)).trimEnd());
  return 0;
}

function readText(file: string): string {
  try {
    return readFileSync(file === "-" ? 0 : file, "utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new InvalidRequest(`${file}: ${code === "ENOENT" ? "no such file" : message}`);
  }
}
