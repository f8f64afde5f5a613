// The plugin's side of the node-local service: hand everything over, print what comes back.
import { close, connectUnix, openReadOnly, readAll, sendRequest } from "../kernel/index.ts";
import type { ServiceReply, ServiceRequest, ServiceSocket } from "./service-protocol.ts";
import { type MarkStep, noTimes } from "./step-times.ts";

const SERVICE_SOCKET: ServiceSocket = "/var/run/calico/cni.sock";
/** Longer than any ADD takes that still succeeds. */
const REPLY_TIMEOUT_MS = 180_000;

/** The reply; nothing when nobody listens, or when the service leaves it to us. */
export function askService(
  env: NodeJS.ProcessEnv,
  stdin: string,
  mark: MarkStep = noTimes,
): { exitCode: number; stdout: string } | undefined {
  const path = socketPath(stdin);
  if (path === "") return undefined;
  const connection = connectUnix(path, REPLY_TIMEOUT_MS);
  if (connection === undefined) return undefined;
  const netns = openNetns(env["CNI_NETNS"]);
  try {
    const request: ServiceRequest = {
      env: requestEnvironment(env),
      stdin,
      ...(mark === noTimes ? {} : { times: true }),
    };
    if (!sendRequest(connection, new TextEncoder().encode(JSON.stringify(request)), netns)) return undefined;
    mark("request sent");
    const reply = readAll(connection);
    if (reply === undefined || reply.length === 0) return undefined; // the service went away meanwhile
    const answer = JSON.parse(new TextDecoder().decode(reply)) as ServiceReply;
    if ("declined" in answer) return undefined;
    for (const [step, at] of answer.times ?? []) mark(step, at);
    mark("reply read");
    return answer;
  } finally {
    close(connection);
    if (netns !== undefined) close(netns);
  }
}

/** The variables that belong to a request. */
function requestEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const picked: Record<string, string> = {};
  for (const name in env) {
    const value = env[name];
    if (value !== undefined && (name.startsWith("CNI_") || name === "FELIX_INTERFACEPREFIX")) picked[name] = value;
  }
  return picked;
}

/** The configuration may name another socket, or none. */
function socketPath(stdin: string): string {
  try {
    const named = (JSON.parse(stdin) as { service_socket?: unknown } | null)?.service_socket;
    return typeof named === "string" ? named : SERVICE_SOCKET;
  } catch {
    return ""; // not for the service to complain about
  }
}

function openNetns(path: string | undefined): number | undefined {
  if (path === undefined || path === "" || path.includes("\0")) return undefined;
  const fd = openReadOnly(path);
  return fd < 0 ? undefined : fd; // each command says what a missing namespace means for it
}
