// Implements `calicoctl node status`, which prints whether the agent is running, and BIRD's sessions with the cause if one is
// down.
import {
  BIRD_SOCKETS,
  type BirdSession,
  BirdUnreachable,
  bgpSessions,
  connectBird,
  parseProtocols,
  sessionCause,
  type SessionEvidence,
} from "../../../bgp/index.ts";
import type { IpVersion } from "../../../lib/ip/ip.ts";
import type { Call } from "../../table/flags.ts";
import type { statusGrammar } from "../../table/node.ts";
import { Failure } from "../../command-line/failure.ts";
import { loadSessionEvidence } from "../../../node/index.ts";
import { isFelix, processesHere, requireRoot } from "../../node/processes.ts";
import { readSupervision, supervisedProcesses } from "../../node/supervisor.ts";
import { formatBoxTable } from "../../../lib/terminal/table.ts";
import { toJson } from "../../output/json.ts";

export async function run(call: Call<typeof statusGrammar>): Promise<number> {
  requireRoot();
  const isJson = call.flags.output === "json";
  const processes = processesHere();
  const isRunning = processes.some(isFelix);
  if (!isRunning && !isJson) throw new Failure("Calico process is not running.");
  const { out } = call.io;
  const supervision = readSupervision();
  const supervisor = supervision?.pid;
  const supervised = supervision === undefined ? undefined : supervisedProcesses(supervision, processes);
  const isUnsupervised = supervised?.isVisible === true && supervised.find(supervision?.pid ?? 0) === undefined;
  const answers = { 4: await sessionsOf(4), 6: await sessionsOf(6) };
  if (isJson) {
    const { readSessionEvidence } = await loadSessionEvidence();
    out(
      toJson({ running: isRunning, supervised: !isUnsupervised, ipv4: asData(answers[4]), ipv6: asData(answers[6]) }),
    );
    return isRunning ? 0 : 1;

    function asData(sessions: readonly BirdSession[] | undefined) {
      return {
        running: sessions !== undefined,
        peers: (sessions ?? [])
          .filter(({ kind }) => TYPES[kind] !== undefined)
          .map((each) => sessionData(each, readSessionEvidence()(each))),
      };
    }
  }
  out("Calico process is running.\n");
  if (isUnsupervised)
    out(
      `WARNING: calico-node itself (process ${supervisor}) has ended. Its other processes still run, but are not restarted if they end. Start calico-node again.\n`,
    );
  if (answers[4] === undefined && answers[6] === undefined) {
    const isBgpDisabled = supervision !== undefined && !supervision.children.some(({ name }) => name === "bird");
    out(
      isBgpDisabled
        ? "\nThis node does not use BGP: CALICO_NETWORKING_BACKEND is vxlan or none.\n\n"
        : "\nThe BGP backend process (BIRD) is not running.\n\n",
    );
    return 0;
  }
  const { readSessionEvidence } = await loadSessionEvidence();
  for (const version of [4, 6] as const) {
    const sessions = answers[version];
    const name = version === 4 ? "bird" : "bird6";
    if (sessions === undefined) out(`\nINFO: BIRDv${version} process: '${name}' is not running.\n`);
    else out(`\nIPv${version} BGP status\n${describeSessions(version, sessions, readSessionEvidence())}`);
  }
  out("\n");
  return 0;
}

function sessionData(session: BirdSession, evidence: SessionEvidence) {
  const { neighbor, name, port, kind, state, since, bgpState, info, neighborAs, imported, exported } = session;
  return {
    address: neighbor ?? name,
    port,
    type: TYPES[kind] ?? "",
    state,
    since,
    bgpState,
    info,
    neighborAs,
    imported,
    exported,
    cause: sessionCause(session, evidence),
  };
}

/** Returns undefined if BIRD for this IP version is not running. */
async function sessionsOf(version: IpVersion): Promise<readonly BirdSession[] | undefined> {
  try {
    using control = await connectBird(BIRD_SOCKETS[version]);
    return bgpSessions(parseProtocols(await control.request("show protocols all")));
  } catch (error) {
    if (error instanceof BirdUnreachable) return undefined;
    throw error;
  }
}

const TYPES: Partial<Record<BirdSession["kind"], string>> = {
  mesh: "node-to-node mesh",
  node: "node specific",
  global: "global",
};

export function describeSessions(
  version: IpVersion,
  sessions: readonly BirdSession[],
  evidenceOf: (session: BirdSession) => SessionEvidence = () => ({}),
): string {
  const known = sessions.filter(({ kind }) => TYPES[kind] !== undefined);
  if (known.length === 0) return `No IPv${version} peers found.\n`;
  const address = ({ neighbor, name, port }: BirdSession) =>
    `${neighbor ?? name}${port === undefined || port === 179 ? "" : ` port ${port}`}`;
  const table = formatBoxTable(
    ["PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"].map((title) => ({ title })),
    known.map((session) => [
      address(session),
      TYPES[session.kind] ?? "",
      session.state,
      session.since,
      session.info === "" || session.info.startsWith(session.bgpState)
        ? session.info || session.bgpState
        : `${session.bgpState} ${session.info}`.trim(),
    ]),
  );
  const causes = known.flatMap((session) => {
    const cause = sessionCause(session, evidenceOf(session));
    return cause === undefined ? [] : [`${address(session)}: ${cause}\n`];
  });
  return table + causes.join("");
}
