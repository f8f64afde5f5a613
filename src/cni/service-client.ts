// The plugin's side of the node-local service: hand everything over, print what comes back.
import { closeSync, openSync } from "node:fs";
import { connectUnix, readAll, sendRequest } from "../kernel/index.ts";
import type { ServiceReply, ServiceRequest, ServiceSocket } from "./service-protocol.ts";

const SERVICE_SOCKET: ServiceSocket = "/var/run/calico/cni.sock";
/** Longer than any ADD takes that still succeeds. */
const REPLY_TIMEOUT_MS = 180_000;

/** The reply; nothing when nobody listens, or when the service leaves it to us. */
export function askService(env: NodeJS.ProcessEnv, stdin: string): { exitCode: number; stdout: string } | undefined {
  const path = socketPath(stdin);
  if (path === "") return undefined;
  const connection = connectUnix(path, REPLY_TIMEOUT_MS);
  if (connection === undefined) return undefined;
  const netns = openNetns(env["CNI_NETNS"]);
  try {
    const request: ServiceRequest = { env: requestEnvironment(env), stdin };
    if (!sendRequest(connection, new TextEncoder().encode(JSON.stringify(request)), netns)) return undefined;
    const reply = readAll(connection);
    if (reply === undefined || reply.length === 0) return undefined; // the service went away meanwhile
    const answer = JSON.parse(new TextDecoder().decode(reply)) as ServiceReply;
    return "declined" in answer ? undefined : answer;
  } finally {
    closeSync(connection);
    if (netns !== undefined) closeSync(netns);
  }
}

/** The variables that belong to a request. */
function requestEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const picked: Record<string, string> = {};
  for (const [name, value] of Object.entries(env))
    if (value !== undefined && (name.startsWith("CNI_") || name === "FELIX_INTERFACEPREFIX")) picked[name] = value;
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
  if (path === undefined || path === "") return undefined;
  try {
    return openSync(path, "r");
  } catch {
    return undefined; // each command says what a missing namespace means for it
  }
}
