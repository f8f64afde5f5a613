// A host whose first process was killed has lost its files and the names of its pods, while its network and whatever ran
// on it live on. `up` ends these and starts it as after a crash: the same host, its pods attached once more.
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { LabFolder, LabPod } from "./folder.ts";
import { LabHost } from "./host.ts";
import type { Lab } from "./lab.ts";
import { podNamespace } from "./pods.ts";
import { endProcesses, namespaceOf, namespacesSeenBy, processesOf } from "./process.ts";

/** Programs of hosts that are gone: they see the files of none that is there. Nobody may wait for them. */
export async function endOrphans(folder: LabFolder, hosts: readonly { readonly name: string }[]): Promise<void> {
  const holders = hosts.flatMap(({ name }) => new LabHost(folder, name).holder?.pid ?? []);
  if (holders.length === hosts.length) return;
  const alive = new Set(holders.map((pid) => namespaceOf(pid, "mnt")));
  const orphans = processesOf(folder, new Set()).filter(({ pid }) => !alive.has(namespaceOf(pid, "mnt")));
  await endProcesses(orphans, 0);
}

/** Pods that the record has and their hosts do not. */
export function lostPods(lab: Lab): LabPod[] {
  return lab.record.pods.filter((pod) => {
    const holder = lab.host(pod.node).holder;
    return holder !== undefined && !existsSync(join(namespacesSeenBy(holder.pid), podNamespace(pod)));
  });
}
