// Changes the environment of calico-node on a host, and restarts it.
import type { Lab } from "./lab.ts";
import { InvalidRequest } from "./options.ts";
import { stopProcess } from "./process.ts";
import { startNode } from "./programs.ts";
import { untilReady } from "./readiness.ts";

const STOP_WITHIN_MS = 10_000;
/** After a restart, readiness may wait for BGP peers. */
const READY_WITHIN_MS = 60_000;

/**
 * @param words `NAME=value`; an empty value restores the value of the lab's plan
 * @throws if `wait` is set and calico-node exits or is not ready in time
 */
export async function changeSettings(
  lab: Lab,
  name: string,
  words: readonly string[],
  options: { readonly wait: boolean } = { wait: true },
): Promise<void> {
  if (lab.cluster !== undefined)
    throw new InvalidRequest(
      "set: in a Kubernetes cluster, change the DaemonSet instead: calico lab kubectl set env -n kube-system daemonset/calico-node NAME=VALUE",
    );
  const node = lab.plan.nodes.find((each) => each.name === name);
  if (node === undefined || words.length === 0)
    throw new InvalidRequest(
      `usage: set NODE NAME=VALUE …; nodes: ${lab.plan.nodes.map((each) => each.name).join(", ")}`,
    );
  const settings = { ...lab.record.settings?.[name] };
  for (const word of words) {
    const [, key, value] = /^([A-Z][A-Z0-9_]*)=(.*)$/s.exec(word) ?? [];
    if (key === undefined || value === undefined)
      throw new InvalidRequest(`${word}: want NAME=VALUE, the name in capitals: FELIX_LOGSEVERITYSCREEN=debug`);
    if (value === "") delete settings[key];
    else settings[key] = value;
  }
  lab.update({ settings: { ...lab.record.settings, [name]: settings } });
  await stopProcess(lab.folder, lab.host(name).programName("calico-node"), STOP_WITHIN_MS);
  startNode(lab.folder, lab.options, lab.plan, node, settings);
  if (options.wait) await untilReady(lab, name, READY_WITHIN_MS);
}
