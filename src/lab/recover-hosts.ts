// Helps `up` to recover hosts whose holder process was killed. Such a host has lost its files and the names of its pods'
// namespaces, but its network and programs still exist. `up` stops the programs, starts the host and attaches the pods again.
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { LabFolder, LabPod } from "./folder.ts";
import { LabHost } from "./host.ts";
import type { Lab } from "./lab.ts";
import { podNamespace } from "./pods.ts";
import { stopProcesses, namespaceOf, namespaceFolderOf, processesOf } from "./process.ts";

/** Stops programs of killed hosts, which are in the mount namespace of no running host. */
export async function stopOrphans(folder: LabFolder, hosts: readonly { readonly name: string }[]): Promise<void> {
  const holders = hosts.flatMap(({ name }) => new LabHost(folder, name).holder?.pid ?? []);
  if (holders.length === hosts.length) return;
  const alive = new Set(holders.map((pid) => namespaceOf(pid, "mnt")));
  const orphans = processesOf(folder, new Set()).filter(({ pid }) => !alive.has(namespaceOf(pid, "mnt")));
  await stopProcesses(orphans, 0);
}

/** Pods in the record that do not exist on their hosts. */
export function missingPods(lab: Lab): LabPod[] {
  return lab.record.pods.filter((pod) => {
    const holder = lab.host(pod.node).holder;
    return holder !== undefined && !existsSync(join(namespaceFolderOf(holder.pid), podNamespace(pod)));
  });
}
