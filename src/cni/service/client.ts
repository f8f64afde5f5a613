// Sends a request to the node agent's CNI service and prints the reply (`protocol.ts` describes the protocol). This file must
// not import `node:` modules, because loading them delays every pod start (`node:fs` takes 1.1 ms).
import { openReadOnly, requestUnix, writeStandardOutput } from "../../kernel/index.ts";
import type { RequestHead } from "./protocol.ts";
import { type MarkStep, noTimes } from "../step-times.ts";

export const SERVICE_SOCKET = "/var/run/calico/cni.sock";
/** Time limit for accepting the connection and, during STATUS, between two keepalives. The service sends one every second. */
const SILENCE_TIMEOUT_SECONDS = 4;
const ENOENT = 2;
const NEWLINE = 10;
/** A space. */
const KEEPALIVE = 32;
const OPEN_BRACE = 123;
const VARIABLES = [
  "CNI_COMMAND",
  "CNI_CONTAINERID",
  "CNI_NETNS",
  "CNI_IFNAME",
  "CNI_ARGS",
  "CNI_PATH",
  "CNI_NETNS_OVERRIDE",
  "FELIX_INTERFACEPREFIX",
];

/** Why there is no reply, in cases where the plugin must not do the work itself. */
export type ServiceFailure =
  /** The request was sent, and the connection broke: the service may have done any part of the work. */
  | "broken"
  /** The service did not accept the request in time, or sent no keepalive during STATUS. */
  | "silent";

/**
 * Sends the request to the node's service and prints its reply. Once the request is sent, this waits for the reply without
 * a time limit: the service may have started, and an overloaded or stopped service continues later. STATUS is the
 * exception, because it changes nothing.
 * @param input the network configuration, unchanged
 * @returns the exit code; undefined if no service listens or the service declines, so that the plugin does the work itself
 */
export function callService(
  input: string,
  env: NodeJS.ProcessEnv,
  mark: MarkStep = noTimes,
): number | ServiceFailure | undefined {
  const path = socketPath(input);
  if (path === "") return undefined;
  const descriptor = openNamespace(env["CNI_NETNS"] ?? "");
  // A namespace that exists and cannot be opened is not missing: the service would consider the interface in it deleted.
  // The plugin then reports the error itself.
  if (descriptor === "failed") return undefined;
  const reply = requestUnix({
    path,
    bytes: new TextEncoder().encode(`${requestHead(env)}\n${input}`),
    descriptor,
    timeoutSeconds: SILENCE_TIMEOUT_SECONDS,
    hasReplyTimeout: env["CNI_COMMAND"] === "STATUS",
  });
  mark("request sent, reply read");
  if (reply.kind === "notSent") return undefined;
  if (reply.kind === "timeout") return "silent";
  const parsed = reply.kind === "broken" ? "broken" : parseReply(reply.bytes);
  if (parsed === undefined || parsed === "broken") return parsed;
  writeStandardOutput(parsed.output);
  return parsed.code;
}

/** @returns undefined if the service declines, "broken" if the reply is incomplete */
export function parseReply(
  reply: Uint8Array,
): { readonly code: 0 | 1; readonly output: string } | "broken" | undefined {
  const end = reply.length - 1;
  if (reply[end] !== NEWLINE) return "broken"; // the reply is incomplete
  let from = 0;
  while (reply[from] === KEEPALIVE) from++;
  if (reply[from] === OPEN_BRACE) return undefined; // declined
  const code = (reply[from] ?? 0) - 48;
  if (end < from + 2 || (code !== 0 && code !== 1) || reply[from + 1] !== NEWLINE) return "broken";
  return { code, output: new TextDecoder().decode(reply.subarray(from + 2, end)) };
}

/** @returns undefined if the namespace does not exist; each command decides whether that is an error */
function openNamespace(path: string): number | "failed" | undefined {
  if (path === "") return undefined;
  try {
    const opened = openReadOnly(path);
    if (opened === -ENOENT) return undefined;
    return opened < 0 ? "failed" : opened;
  } catch {
    return "failed"; // the path is too long
  }
}

function requestHead(env: NodeJS.ProcessEnv): string {
  const picked: Record<string, string> = {};
  for (const name of VARIABLES) {
    const value = env[name];
    if (value !== undefined) picked[name] = value;
  }
  const head: RequestHead = { env: picked };
  return JSON.stringify(head);
}

/** Returns the socket of the configuration, or the default. Empty means that no service is used. */
function socketPath(input: string): string {
  if (!input.includes('"service_socket"')) return SERVICE_SOCKET;
  try {
    const { service_socket: configured } = (JSON.parse(input) ?? {}) as { service_socket?: unknown };
    return typeof configured === "string" ? configured : SERVICE_SOCKET;
  } catch {
    return ""; // the plugin reports that the configuration is not JSON
  }
}
