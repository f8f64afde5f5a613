// Implements `calico lab set`: changes the environment of calico-node on a host, and restarts it.
import { Lab } from "../lab.ts";
import { lockExisting } from "../lock.ts";
import { changeSettings } from "../settings.ts";
import type { LabCall, setGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { requestedLab } from "./requested-lab.ts";

export async function run({ flags, args }: LabCall<typeof setGrammar>): Promise<number> {
  const name = requestedLab(flags);
  const { NODE: node = "", "NAME=VALUE": settings } = args;
  using _ = await lockExisting(name);
  const started = performance.now();
  await changeSettings(Lab.open(name), node, settings);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  openTerminal().line(`calico-node on ${node} runs with ${settings.join(" ")}, ready after ${seconds} s`);
  return 0;
}
