// Probes whether calico-node on a host is ready, with the environment it runs with, because `set` may have changed ports.
import { delay } from "../lib/retry.ts";
import { lastLine } from "./host.ts";
import type { Lab } from "./lab.ts";
import { nodeEnvironment, rolePath } from "./programs.ts";

/** Returns undefined if calico-node is ready. */
export function whyNotReady(lab: Lab, name: string): string | undefined {
  const node = lab.plan.nodes.find((each) => each.name === name);
  const host = lab.host(name);
  if (node === undefined) return `${name} is not a node`;
  if (host.program("calico-node") === undefined) return "calico-node is not running";
  const environment = { ...nodeEnvironment(lab.options, lab.plan, node), ...lab.record.settings?.[name] };
  const bird = ["vxlan", "none"].includes(environment["CALICO_NETWORKING_BACKEND"] ?? "") ? [] : ["-bird-ready"];
  const { code, stdout, stderr } = host.run([rolePath("calico-node"), "-felix-ready", ...bird], { environment });
  if (code === 0) return undefined;
  return (stderr || stdout).trim().split("\n")[0] || `the probe exited with ${code}`;
}

/** @throws if calico-node exits, or is not ready in time */
export async function untilReady(lab: Lab, node: string, withinMs: number): Promise<void> {
  const host = lab.host(node);
  const log = lab.folder.log(host.programName("calico-node"));
  for (const deadline = performance.now() + withinMs; ; await delay(100)) {
    const fault = whyNotReady(lab, node);
    if (fault === undefined) return;
    if (host.program("calico-node") === undefined) throw new Error(`calico-node on ${node} exited: ${lastLine(log)}`);
    if (performance.now() > deadline)
      throw new Error(`${node} is not ready after ${Math.round(withinMs / 1000)} s: ${fault} (log: ${log})`);
  }
}
