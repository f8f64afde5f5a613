// Implements `calico lab matrix`: shows which pods can connect to which.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { Lab } from "../lab.ts";
import { measureMatrix, renderMatrix } from "../matrix.ts";
import { InvalidRequest } from "../options.ts";
import type { LabCall, matrixGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { printResult, requestedLab } from "./requested-lab.ts";

const VERSIONS: Readonly<Record<"4" | "6", IpVersion>> = { 4: 4, 6: 6 };

export async function run({ flags }: LabCall<typeof matrixGrammar>): Promise<number> {
  const name = requestedLab(flags);
  const lab = Lab.open(name);
  const terminal = openTerminal();
  const version = VERSIONS[flags.version];
  if (version === 6 && !lab.options.ipv6)
    throw new InvalidRequest(`lab ${name} has no IPv6; create one with calico lab up --ipv6`);
  const { protocol, port, namespace } = flags;
  const cells = await measureMatrix(lab, { protocol, port, version, timeoutMs: 600, namespace });
  if (cells.length === 0 && namespace !== undefined)
    throw new InvalidRequest(`lab ${name} has no pods in namespace ${namespace}; see calico lab pod list`);
  printResult(terminal, flags, cells, () => renderMatrix(cells, terminal.colour, terminal.width));
  return 0;
}
