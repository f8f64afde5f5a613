// Removes a lab: the processes in its namespaces, the namespaces, its control groups and its folder. It finds them by name,
// not by the lab's record, so that it also works after a crash, repeatedly, and for a lab that was never complete.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { deleteNamedNamespace, listNamedNamespaces, NetworkNamespace } from "../kernel/index.ts";
import { LabFolder } from "./folder.ts";
import { removeGroups } from "./kubernetes/cgroups.ts";
import { isNodeReady } from "./kubernetes/host.ts";
import { lockLab } from "./lock.ts";
import {
  stopProcesses,
  findProcess,
  isHostReady,
  namespaceFolderOf,
  processesOf,
  recordedProcesses,
} from "./process.ts";
import { counted, openTerminal, type Terminal } from "./terminal.ts";

const GRACE_MS = 500;

/** @returns `existed`: whether any part of the lab existed */
export async function down(name: string, terminal: Terminal): Promise<{ readonly existed: boolean }> {
  const folder = new LabFolder(name);
  using _ = await lockLab(folder);
  const namespaces = listNamedNamespaces().filter((ns) => ns.startsWith(folder.namespacePrefix));
  const inside = new Set(namespaces.map(identityOf));
  // The namespaces of pods have names only in the mount namespaces of their hosts.
  for (const host of holders(folder)) for (const pod of podNamespaces(host)) inside.add(pod);
  const processes = [...processesOf(folder, inside), ...recordedProcesses(folder)];
  const existed = existsSync(folder.path) || processes.length + namespaces.length > 0;
  const output = existed ? terminal : openTerminal({ quiet: true });
  await output.step(`${processes.length} process${processes.length === 1 ? "" : "es"}`, async () => {
    await stopProcesses(processes, GRACE_MS);
    // processes started meanwhile
    await stopProcesses(processesOf(folder, inside), 0);
  });
  await output.step(counted(namespaces.length, "namespace"), async () => {
    for (const namespace of namespaces) deleteNamedNamespace(namespace);
    await removeGroups(folder.namespacePrefix);
  });
  await output.step("files", () => folder.remove()); // takes long for a Kubernetes cluster: each node has its own images
  return { existed };
}

function identityOf(name: string): string {
  using namespace = NetworkNamespace.named(name);
  return linkText(namespace);
}

/** As in /proc/PID/ns/net. */
const linkText = (namespace: NetworkNamespace): string => `net:[${namespace.inode}]`;

/** Without hosts that are still starting: they have no pods, and see the named namespaces of the whole machine. */
function holders(folder: LabFolder): number[] {
  return listNamedNamespaces()
    .filter((ns) => ns.startsWith(folder.namespacePrefix))
    .map((ns) => ns.slice(folder.namespacePrefix.length))
    .flatMap((host) => {
      const pid = findProcess(folder, `${host}-host`)?.pid;
      return pid !== undefined && (isHostReady(pid) || isNodeReady(folder, host)) ? [pid] : [];
    });
}

/** Returns `net:[inode]` of each named namespace of a host. */
function podNamespaces(holder: number): string[] {
  const folder = namespaceFolderOf(holder);
  try {
    return readdirSync(folder).map((name) => {
      using namespace = NetworkNamespace.open(join(folder, name));
      return linkText(namespace);
    });
  } catch {
    return []; // the host or a pod was removed meanwhile
  }
}
