// The plugin's side of the node-local service: hand everything over, print what comes back. Every pod start pays for each
// line here, most of all for the first use of anything of the runtime: hence loops where `map` would do.
import type { BriefCalls } from "../kernel/index.ts";
import type { RequestHead, ServiceSocket } from "./service-protocol.ts";
import { type MarkStep, noTimes } from "./step-times.ts";

const SERVICE_SOCKET: ServiceSocket = "/var/run/calico/cni.sock";
/**
 * How long the service may take to accept a connection, and to give a sign of life while it works on STATUS. It sends one
 * every second.
 */
export const SILENCE_SECONDS = 4;
const ENOENT = 2;
const NEWLINE = 10;
const SIGN_OF_LIFE = 32;
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

/** Why the service has not replied, and nobody else may do its work. */
export type ServiceFailure =
  /** The request was sent, and the connection broke: the service may have done any part of the work. */
  | "broken"
  /** The service did not accept the request in time, or gave no sign of life during STATUS. */
  | "silent";

/**
 * Sends the request to the node's service and prints its reply. Once the request is sent, this waits for the reply without
 * a time limit: the service may have started, and an overloaded or stopped service continues later. STATUS is the
 * exception, because it changes nothing.
 * @returns the exit code; undefined if nobody listens or the service declines: then the plugin does the work itself
 */
export function askService(
  calls: BriefCalls,
  env: NodeJS.ProcessEnv,
  mark: MarkStep = noTimes,
): number | ServiceFailure | undefined {
  const path = socketPath(calls);
  if (path === "") return undefined;
  // Each command says what a missing namespace means for it. One that is there and cannot be opened is not missing: the
  // service would take its wire for gone. Then we say so ourselves.
  const namespace = env["CNI_NETNS"] ?? "";
  const opened = namespace === "" ? -ENOENT : calls.openReadOnly(namespace);
  if (opened === undefined || (opened < 0 && opened !== -ENOENT)) return undefined;
  const netns = opened < 0 ? undefined : opened;
  const connection = calls.connect(path, SILENCE_SECONDS, env["CNI_COMMAND"] === "STATUS");
  if (connection === undefined || !calls.send(connection, `${requestHead(env)}\n`, netns))
    return calls.wasSilent ? "silent" : undefined;
  mark("request sent");
  const length = calls.readReply(connection);
  if (calls.wasSilent) return "silent";
  if (length === undefined || calls.replyByte(length - 1) !== NEWLINE) return "broken";
  let from = 0;
  while (calls.replyByte(from) === SIGN_OF_LIFE) from++;
  const first = calls.replyByte(from) ?? 0;
  if (first === OPEN_BRACE) return undefined; // declined
  const code = first - 48;
  if (length < from + 3 || (code !== 0 && code !== 1) || calls.replyByte(from + 1) !== NEWLINE) return "broken";
  mark("reply read");
  calls.printReply(from + 2, length - 1);
  return code;
}

/** In ASCII. */
function requestHead(env: NodeJS.ProcessEnv): string {
  const picked: Record<string, string> = {};
  for (const name of VARIABLES) {
    const value = env[name];
    if (value !== undefined) picked[name] = value;
  }
  const head: RequestHead = { env: picked };
  const text = JSON.stringify(head);
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 127) return escaped(text);
  return text;
}

function escaped(text: string): string {
  let all = "";
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    all += code > 127 ? `\\u${code.toString(16).padStart(4, "0")}` : text[i];
  }
  return all;
}

/** The configuration may name another socket, or none. */
function socketPath(calls: BriefCalls): string {
  if (!calls.inputHas('"service_socket"')) return SERVICE_SOCKET;
  try {
    return socketNamed(JSON.parse(calls.input) as { service_socket?: unknown } | null);
  } catch {
    return ""; // not for the service to complain about
  }
}

/** Empty: nobody is to be asked. */
export function socketNamed(config: { readonly service_socket?: unknown } | null): string {
  const named = config?.service_socket;
  return typeof named === "string" ? named : SERVICE_SOCKET;
}
