// Finds out which of calico-node's processes run on this host.
import { statSync } from "node:fs";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import type { SupervisorState } from "../../node/index.ts";
import { isFelix, processesHere } from "../node/processes.ts";
import { readSupervision, supervisedProcesses } from "../node/supervisor.ts";
import type { HostPart } from "./facts.ts";

/** Felix updates its modification time every 10 s and deletes it on shutdown. */
const ALIVE_FILE = "/var/run/calico/felix-alive";
const SILENT_MS = 35_000;
/** calico-node starts a part that requested a restart again within about a second. */
const RESTART_MS = 10_000;

export interface PartSigns {
  /** Names of parts that answered a request: `bird`, `bird6`. */
  readonly answering: ReadonlySet<string>;
  readonly supervisorFile?: string;
  readonly aliveFile?: string;
}

/** @throws if the processes of this host cannot be examined */
export function readParts(signs: PartSigns): readonly HostPart[] {
  if (process.getuid?.() !== 0) throw new Error("only root can see the processes of other users");
  const supervision = readSupervision(signs.supervisorFile);
  if (supervision !== undefined) return supervisedParts(supervision, signs);
  // Another program supervises the node: at least Felix must run.
  const felix = processesHere().find(isFelix);
  if (felix !== undefined) return [partOf("felix", felix.pid, signs)];
  return [{ name: "felix", isRunning: false, detail: "no process of that name is there" }];
}

function supervisedParts(supervision: SupervisorState, signs: PartSigns): readonly HostPart[] {
  const { find, isVisible } = supervisedProcesses(supervision, processesHere());
  const { pid, children } = supervision;
  const own = find(pid);
  const silentMs = isVisible ? undefined : silence(signs);
  if (own === undefined && silentMs !== undefined && silentMs < SILENT_MS) return answeringParts(supervision, signs);
  if (own === undefined)
    return [
      {
        name: "calico-node",
        isRunning: false,
        detail: `its process ${pid} has ended; nothing supervises the rest, which works on as it is`,
        fix: "start it again (systemctl start calico-node, or the pod); its last lines in /var/log/calico or `journalctl -u calico-node` say why it ended",
      },
    ];
  const supervisor = partOf("calico-node", own.pid, signs);
  return [
    ...(supervisor.isRunning ? [] : [supervisor]),
    ...children
      .filter((child) => !isBeingRestarted(child))
      .map(({ name, state, pid: child, lastExit }): HostPart => {
        const process = state === "running" && child !== undefined ? find(child) : undefined;
        if (process !== undefined) return partOf(name, process.pid, signs);
        if (lastExit?.error !== undefined)
          return { name, isRunning: false, detail: `it cannot be started: ${lastExit.error}` };
        const now = state === "running" ? `its process ${child} has ended` : `it is ${state}`;
        const detail =
          lastExit === undefined
            ? now
            : `${now}, and ended last with ${lastExit.signal ?? `code ${lastExit.code}`} at ${lastExit.at}`;
        return { name, isRunning: false, detail };
      }),
  ];
}

/** True during an ordinary restart, such as that of Felix after a change of its configuration. */
const isBeingRestarted = ({ state, lastExit }: SupervisorState["children"][number]): boolean =>
  state === "restarting" && lastExit !== undefined && Date.now() - Date.parse(lastExit.at) < RESTART_MS;

/** For a calico-node whose processes are not visible from here: those that can be reached otherwise. */
const answeringParts = ({ children }: SupervisorState, { answering }: PartSigns): readonly HostPart[] =>
  children
    .filter(({ name }) => name === "bird" || name === "bird6")
    .map(({ name, state }) =>
      answering.has(name)
        ? { name, isRunning: true, detail: "it answers on its control socket" }
        : {
            name,
            isRunning: false,
            detail: `it does not answer on its control socket; calico-node has it as ${state}`,
          },
    );

/** A process that exists may still be stopped, or hang. */
function partOf(name: string, pid: number, signs: PartSigns): HostPart {
  const state = /\) (\S)/.exec(readFileIfExists(`/proc/${pid}/stat`) ?? "")?.[1];
  if (state === "T" || state === "t")
    return {
      name,
      isRunning: false,
      isStuck: true,
      detail: `its process ${pid} is stopped (${state === "T" ? "SIGSTOP" : "by a debugger"}): what is in the kernel stays, nothing new gets there`,
      fix: `kill -CONT ${pid}, or restart calico-node`,
    };
  const silentMs = name === "felix" ? silence(signs) : undefined;
  if (silentMs === undefined || silentMs < SILENT_MS) return { name, isRunning: true, detail: "it is running" };
  return {
    name,
    isRunning: false,
    isStuck: true,
    detail: `its process ${pid} is there and has given no sign of life for ${Math.round(silentMs / 1000)} s: it hangs, or the machine gives it no time`,
    fix: `calicoctl node diags keeps what is to be seen; then restart calico-node`,
  };
}

function silence({ aliveFile = ALIVE_FILE }: PartSigns): number | undefined {
  try {
    return Date.now() - statSync(aliveFile).mtimeMs;
  } catch {
    return undefined; // Felix has not started, or writes its files elsewhere
  }
}
