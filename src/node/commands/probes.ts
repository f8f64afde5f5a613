// Whether the parts of this node live and are ready, asked of the parts themselves. A remote node's death never makes
// this one unready; `CALICO_BIRD_READY=peers` brings the original's rule back, by which it could.
import { readFileSync, statSync } from "node:fs";
import { get } from "node:http";
import {
  BIRD_SOCKETS,
  type BirdStatus,
  bgpSessions,
  connectBird,
  parseProtocols,
  parseStatus,
} from "../../bgp/index.ts";
import type { Environment } from "../../datastore/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { CONFD_FOLDER, SUPERVISOR_FILE } from "../supervisor/children.ts";
import type { SupervisorState } from "../supervisor/supervisor.ts";

export type Check = "felix-live" | "felix-ready" | "bird-live" | "bird6-live" | "bird-ready" | "bird6-ready";
export const CHECKS: readonly Check[] = [
  "felix-live",
  "felix-ready",
  "bird-live",
  "bird6-live",
  "bird-ready",
  "bird6-ready",
];

export interface ProbeOptions {
  readonly env: Environment;
  readonly thresholdMs: number;
  readonly nodenameFile?: string;
  readonly supervisorFile?: string;
  readonly configFolder?: string;
  readonly sockets?: Readonly<Record<IpVersion, readonly string[]>>;
}

/** Undefined when fine, else why not. */
export async function probe(check: Check, options: ProbeOptions): Promise<string | undefined> {
  const [part, what] = check.split("-") as ["felix" | "bird" | "bird6", "live" | "ready"];
  if (part === "felix") return probeFelix(what, options);
  const version = part === "bird" ? 4 : 6;
  return what === "live" ? birdIsLive(part, version, options) : birdIsReady(part, version, options);
}

/** The first that fails, in the order asked. */
export async function probeAll(checks: readonly Check[], options: ProbeOptions): Promise<string | undefined> {
  const results = await Promise.all(
    checks.map((check) =>
      probe(check, options).catch((error: unknown) => (error instanceof Error ? error.message : String(error))),
    ),
  );
  return results.find((result) => result !== undefined);
}

async function probeFelix(what: "live" | "ready", { env, thresholdMs }: ProbeOptions): Promise<string | undefined> {
  const host = env["FELIX_HEALTHHOST"] || "localhost";
  const port = Number(env["FELIX_HEALTHPORT"] || "9099");
  if (!Number.isInteger(port) || port < 1 || port > 65535)
    return `calico/node is not ready: FELIX_HEALTHPORT=${env["FELIX_HEALTHPORT"]} is no port`;
  const path = what === "live" ? "/liveness" : "/readiness";
  const answer = await httpStatus(`http://${host.includes(":") ? `[${host}]` : host}:${port}${path}`, thresholdMs);
  if (typeof answer === "number" && answer >= 200 && answer < 400) return undefined;
  return `calico/node is not ready: felix is not ${what}: ${typeof answer === "number" ? `HTTP status ${answer}` : answer}`;
}

/** The status code, or why there is none. */
export function httpStatus(url: string, timeoutMs: number): Promise<number | string> {
  return new Promise((resolve) => {
    const request = get(url, { timeout: timeoutMs }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    request.on("timeout", () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    // Refused by every address of a name: the sum of it has a code and no words.
    request.on("error", (error: NodeJS.ErrnoException) => resolve(`${url}: ${error.message || error.code}`));
  });
}

/** The service that writes BIRD's configuration and BIRD itself run, and BIRD answers. */
async function birdIsLive(
  part: "bird" | "bird6",
  version: IpVersion,
  options: ProbeOptions,
): Promise<string | undefined> {
  for (const name of ["confd", part]) {
    const fault = partFault(name, options);
    if (fault !== undefined) return `calico/node is not ready: ${name} is not live: ${fault}`;
  }
  const status = await askBird(version, options, "show status");
  return parseStatus(status).version === "" ? `calico/node is not ready: ${part} gives no status` : undefined;
}

function partFault(name: string, { supervisorFile = SUPERVISOR_FILE }: ProbeOptions): string | undefined {
  let state: SupervisorState;
  try {
    state = JSON.parse(readFileSync(supervisorFile, "utf8")) as SupervisorState;
  } catch (error) {
    return `the node's supervisor has left no word: ${error instanceof Error ? error.message : String(error)}`;
  }
  const child = state.children.find((candidate) => candidate.name === name);
  if (child === undefined) return "it is not part of this node";
  if (child.state !== "running" || child.pid === undefined) return `it is ${child.state}`;
  try {
    process.kill(child.pid, 0);
    return undefined;
  } catch {
    return `process ${child.pid} is gone`;
  }
}

async function birdIsReady(
  part: "bird" | "bird6",
  version: IpVersion,
  options: ProbeOptions,
): Promise<string | undefined> {
  const fault = (why: string) => `calico/node is not ready: ${part} is not ready: ${why}`;
  const startedAt = statSync(options.nodenameFile ?? "/var/lib/calico/nodename", { throwIfNoEntry: false })?.mtimeMs;
  if (startedAt === undefined) return fault("the node's name has not been written: startup has not finished");
  const status = parseStatus(await askBird(version, options, "show status"));
  const isYoung = Date.now() - startedAt < options.thresholdMs;
  if (options.env["CALICO_BIRD_READY"] === "peers") {
    const sessions = bgpSessions(parseProtocols(await askBird(version, options, "show protocols all"))).filter(
      ({ kind }) => kind === "mesh" || kind === "global" || kind === "node",
    );
    const down = sessions.filter(({ bgpState }) => bgpState !== "Established");
    const list = down.map(({ neighbor, name }) => neighbor ?? name).join(",");
    if (isYoung && down.length > 0) return fault(`BGP not established with ${list}`);
    if (!isYoung && sessions.length > 0 && down.length === sessions.length)
      return fault(`BGP not established with ${list}`);
  } else {
    const written = statSync(`${options.configFolder ?? CONFD_FOLDER}/${part}.cfg`, { throwIfNoEntry: false })?.mtimeMs;
    if (written === undefined) return fault("its configuration has not been written");
    const applied = birdTimeMs(status.lastReconfiguration);
    if (applied !== undefined && written > applied + APPLY_WITHIN_MS && Date.now() - written > APPLY_WITHIN_MS)
      return fault("its configuration has not been applied");
  }
  if (isYoung && status.isRecovering) {
    const coming = await stillComing(version, options, status);
    if (coming.length > 0) return fault(`graceful restart in progress: waiting for ${coming.join(",")}`);
  }
  return undefined;
}

const APPLY_WITHIN_MS = 5_000;
/** BIRD connects after two seconds, and again every five. */
const CONNECT_WITHIN_MS = 10_000;

/**
 * Whom BIRD waits for after a restart, of those that may still come: neighbours that are up and have not yet told all
 * their routes, and while BIRD is young all others. Those that had their time are down, which is not this node's fault.
 * BIRD goes on waiting for them for its minute: their routes stay as long, and new ones of anyone come in after it.
 */
async function stillComing(
  version: IpVersion,
  options: ProbeOptions,
  { serverTime, lastReboot }: BirdStatus,
): Promise<readonly string[]> {
  const age = (birdTimeMs(serverTime) ?? 0) - (birdTimeMs(lastReboot) ?? 0);
  const hadTime = options.env["CALICO_BIRD_READY"] !== "peers" && age >= CONNECT_WITHIN_MS;
  return bgpSessions(parseProtocols(await askBird(version, options, "show protocols all")))
    .filter(({ isAwaited, bgpState }) => isAwaited && (bgpState === "Established" || !hadTime))
    .map(({ neighbor, name }) => neighbor ?? name);
}

/** BIRD's clock is the host's local time, as we ask for it. */
function birdTimeMs(text: string): number | undefined {
  const time = Date.parse(text.trim().replace(" ", "T"));
  return Number.isNaN(time) ? undefined : time;
}

async function askBird(version: IpVersion, { sockets = BIRD_SOCKETS }: ProbeOptions, question: string) {
  using control = await connectBird(sockets[version]);
  return await control.ask(question);
}
