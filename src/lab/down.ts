// Removes a lab: every process in its namespaces, the namespaces, its control groups, the folder. Goes by names, not by
// records, so that it works after a crash at any point, twice, and on a lab that never came up.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { deleteNamedNamespace, listNamedNamespaces, NetworkNamespace } from "../kernel/index.ts";
import { LabFolder } from "./folder.ts";
import { removeGroups } from "./kubernetes/cgroups.ts";
import { isNodeMade } from "./kubernetes/host.ts";
import { lockLab } from "./lock.ts";
import { endProcesses, findProcess, isSettled, namespacesSeenBy, processesOf, recordedProcesses } from "./process.ts";
import { counted, openTerminal, type Terminal } from "./terminal.ts";

const GRACE_MS = 500;

export interface Removed {
  /** At least something of it was. */
  readonly wasThere: boolean;
}

export async function down(name: string, terminal: Terminal): Promise<Removed> {
  const folder = new LabFolder(name);
  using _ = await lockLab(folder);
  const namespaces = listNamedNamespaces().filter((ns) => ns.startsWith(folder.namespacePrefix));
  const inside = new Set(namespaces.map(identityOf));
  // Pods are namespaces known only inside their hosts: everything a host's holder can see goes with it.
  for (const host of holders(folder)) for (const pod of podNamespaces(host)) inside.add(pod);
  const processes = [...processesOf(folder, inside), ...recordedProcesses(folder)];
  const wasThere = existsSync(folder.path) || processes.length + namespaces.length > 0;
  const say = wasThere ? terminal : openTerminal({ quiet: true });
  await say.step(`${processes.length} process${processes.length === 1 ? "" : "es"}`, async () => {
    await endProcesses(processes, GRACE_MS);
    // What was being started while we looked.
    await endProcesses(processesOf(folder, inside), 0);
  });
  await say.step(counted(namespaces.length, "namespace"), async () => {
    for (const namespace of namespaces) deleteNamedNamespace(namespace);
    await removeGroups(folder.namespacePrefix);
  });
  await say.step("files", () => folder.remove()); // of a Kubernetes cluster the images, on every node
  return { wasThere };
}

function identityOf(name: string): string {
  using namespace = NetworkNamespace.named(name);
  return linkText(namespace);
}

/** How /proc/PID/ns/net names it. */
const linkText = (namespace: NetworkNamespace): string => `net:[${namespace.inode}]`;

/** Not one that is still being made: it sees the names of the whole machine, and has no pods. */
function holders(folder: LabFolder): number[] {
  return listNamedNamespaces()
    .filter((ns) => ns.startsWith(folder.namespacePrefix))
    .map((ns) => ns.slice(folder.namespacePrefix.length))
    .flatMap((host) => {
      const pid = findProcess(folder, `${host}-host`)?.pid;
      return pid !== undefined && (isSettled(pid) || isNodeMade(folder, host)) ? [pid] : [];
    });
}

/** `net:[inode]` of each named namespace a host made for itself. */
function podNamespaces(holder: number): string[] {
  const folder = namespacesSeenBy(holder);
  try {
    return readdirSync(folder).map((name) => {
      using namespace = NetworkNamespace.open(join(folder, name));
      return linkText(namespace);
    });
  } catch {
    return []; // the host, or a pod, is gone meanwhile
  }
}
