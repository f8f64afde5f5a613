// Determines which processes of calico-node run on this host.
import { statSync } from "node:fs";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import type { SupervisorState } from "../../node/index.ts";
import { isFelix, processesHere } from "../node/processes.ts";
import { readSupervision, supervisedProcesses } from "../node/supervisor.ts";
import type { HostPart } from "./facts.ts";

/** Felix updates the modification time of this file every 10 s and deletes it on shutdown. */
const ALIVE_FILE = "/var/run/calico/felix-alive";
const ALIVE_TIMEOUT_MS = 35_000;
/** calico-node restarts a process that requested it within about a second; a restart that takes longer is reported. */
const RESTART_TIMEOUT_MS = 10_000;

export interface PartSigns {
  /** Names of the processes that answered a request: `bird`, `bird6`. */
  readonly answering: ReadonlySet<string>;
  readonly supervisorFile?: string;
  readonly aliveFile?: string;
}

/** @throws if the processes of this host cannot be examined */
export function readParts(signs: PartSigns): readonly HostPart[] {
  if (process.getuid?.() !== 0) throw new Error("only root can read the processes of other users");
  const supervision = readSupervision(signs.supervisorFile);
  if (supervision !== undefined) return supervisedParts(supervision, signs);
  // Another program supervises calico-node's processes, so that only Felix is certain to be among them.
  const felix = processesHere().find(isFelix);
  if (felix !== undefined) return [partOf("felix", felix.pid, signs)];
  return [{ name: "felix", isRunning: false, detail: "there is no process of that name" }];
}

function supervisedParts(supervision: SupervisorState, signs: PartSigns): readonly HostPart[] {
  const { find, isVisible } = supervisedProcesses(supervision, processesHere());
  const { pid, children } = supervision;
  const own = find(pid);
  const aliveAgeMs = isVisible ? undefined : aliveFileAgeMs(signs);
  if (own === undefined && aliveAgeMs !== undefined && aliveAgeMs < ALIVE_TIMEOUT_MS)
    return answeringParts(supervision, signs);
  if (own === undefined)
    return [
      {
        name: "calico-node",
        isRunning: false,
        detail: `its process ${pid} has ended; its other processes may still run, but are no longer supervised`,
        fix: "start it again (systemctl start calico-node, or the pod); the last lines of its log in /var/log/calico or `journalctl -u calico-node` show why it ended",
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
            : `${now}, and last ended with ${lastExit.signal ?? `code ${lastExit.code}`} at ${lastExit.at}`;
        return { name, isRunning: false, detail };
      }),
  ];
}

/** Returns true during an ordinary restart, such as that of Felix after a configuration change. */
const isBeingRestarted = ({ state, lastExit }: SupervisorState["children"][number]): boolean =>
  state === "restarting" && lastExit !== undefined && Date.now() - Date.parse(lastExit.at) < RESTART_TIMEOUT_MS;

/** For a calico-node whose processes are in an invisible pid namespace: those that can be checked by their control sockets. */
const answeringParts = ({ children }: SupervisorState, { answering }: PartSigns): readonly HostPart[] =>
  children
    .filter(({ name }) => name === "bird" || name === "bird6")
    .map(({ name, state }) =>
      answering.has(name)
        ? { name, isRunning: true, detail: "it answers on its control socket" }
        : {
            name,
            isRunning: false,
            detail: `it does not answer on its control socket; calico-node reports it as ${state}`,
          },
    );

/** Reports whether an existing process works: it may be stopped, or hang. */
function partOf(name: string, pid: number, signs: PartSigns): HostPart {
  const state = /\) (\S)/.exec(readFileIfExists(`/proc/${pid}/stat`) ?? "")?.[1];
  if (state === "T" || state === "t")
    return {
      name,
      isRunning: false,
      isStuck: true,
      detail: `its process ${pid} is stopped (${state === "T" ? "SIGSTOP" : "by a debugger"}): rules and routes stay in the kernel, but are no longer updated`,
      fix: `kill -CONT ${pid}, or restart calico-node`,
    };
  const aliveAgeMs = name === "felix" ? aliveFileAgeMs(signs) : undefined;
  if (aliveAgeMs === undefined || aliveAgeMs < ALIVE_TIMEOUT_MS)
    return { name, isRunning: true, detail: "it is running" };
  return {
    name,
    isRunning: false,
    isStuck: true,
    detail: `its process ${pid} exists, but has not updated its alive file for ${Math.round(aliveAgeMs / 1000)} s: it hangs, or gets no CPU time`,
    fix: `calicoctl node diags collects diagnostics; then restart calico-node`,
  };
}

function aliveFileAgeMs({ aliveFile = ALIVE_FILE }: PartSigns): number | undefined {
  try {
    return Date.now() - statSync(aliveFile).mtimeMs;
  } catch {
    return undefined; // Felix has not started, or writes its files elsewhere
  }
}
