// Probes Felix and BIRD for liveness and readiness. A failed peer does not make this node unready, except with
// `CALICO_BIRD_READY=peers`, which selects Calico's rule.
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

/** Returns undefined if the check succeeds, otherwise the reason. */
export async function probe(check: Check, options: ProbeOptions): Promise<string | undefined> {
  const [part, condition] = check.split("-") as ["felix" | "bird" | "bird6", "live" | "ready"];
  if (part === "felix") return probeFelix(condition, options);
  const version = part === "bird" ? 4 : 6;
  return condition === "live" ? birdIsLive(part, version, options) : birdIsReady(part, version, options);
}

/** Returns the first failure, in the order of `checks`. */
export async function probeAll(checks: readonly Check[], options: ProbeOptions): Promise<string | undefined> {
  const results = await Promise.all(
    checks.map((check) =>
      probe(check, options).catch((error: unknown) => (error instanceof Error ? error.message : String(error))),
    ),
  );
  return results.find((result) => result !== undefined);
}

async function probeFelix(
  condition: "live" | "ready",
  { env, thresholdMs }: ProbeOptions,
): Promise<string | undefined> {
  const host = env["FELIX_HEALTHHOST"] || "localhost";
  const port = Number(env["FELIX_HEALTHPORT"] || "9099");
  if (!Number.isInteger(port) || port < 1 || port > 65535)
    return `calico/node is not ready: FELIX_HEALTHPORT=${env["FELIX_HEALTHPORT"]} is not a port number`;
  const path = condition === "live" ? "/liveness" : "/readiness";
  const response = await httpStatus(`http://${host.includes(":") ? `[${host}]` : host}:${port}${path}`, thresholdMs);
  if (typeof response === "number" && response >= 200 && response < 400) return undefined;
  return `calico/node is not ready: felix is not ${condition}: ${typeof response === "number" ? `HTTP status ${response}` : response}`;
}

/** Returns the status code, or the error text if there was no response. */
export function httpStatus(url: string, timeoutMs: number): Promise<number | string> {
  return new Promise((resolve) => {
    const request = get(url, { timeout: timeoutMs }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    request.on("timeout", () => request.destroy(new Error(`no response within ${timeoutMs} ms`)));
    // If every address of the host name refuses the connection, the AggregateError has a code but no message.
    request.on("error", (error: NodeJS.ErrnoException) => resolve(`${url}: ${error.message || error.code}`));
  });
}

/** Checks that the BGP service and BIRD run, and that BIRD responds. */
async function birdIsLive(
  part: "bird" | "bird6",
  version: IpVersion,
  options: ProbeOptions,
): Promise<string | undefined> {
  for (const name of ["confd", part]) {
    const fault = childFault(name, options);
    if (fault !== undefined) return `calico/node is not ready: ${name} is not live: ${fault}`;
  }
  const status = await queryBird(version, options, "show status");
  return parseStatus(status).version === "" ? `calico/node is not ready: ${part} did not report its status` : undefined;
}

function childFault(name: string, { supervisorFile = SUPERVISOR_FILE }: ProbeOptions): string | undefined {
  let state: SupervisorState;
  try {
    state = JSON.parse(readFileSync(supervisorFile, "utf8")) as SupervisorState;
  } catch (error) {
    return `cannot read the supervisor state: ${error instanceof Error ? error.message : String(error)}`;
  }
  const child = state.children.find((candidate) => candidate.name === name);
  if (child === undefined) return "this node does not run it";
  if (child.state !== "running" || child.pid === undefined) return `it is ${child.state}`;
  try {
    process.kill(child.pid, 0);
    return undefined;
  } catch {
    return `process ${child.pid} has exited`;
  }
}

async function birdIsReady(
  part: "bird" | "bird6",
  version: IpVersion,
  options: ProbeOptions,
): Promise<string | undefined> {
  const fault = (why: string) => `calico/node is not ready: ${part} is not ready: ${why}`;
  const startedAt = statSync(options.nodenameFile ?? "/var/lib/calico/nodename", { throwIfNoEntry: false })?.mtimeMs;
  if (startedAt === undefined) return fault("startup has not finished: the nodename file does not exist");
  const status = parseStatus(await queryBird(version, options, "show status"));
  const isStartingUp = Date.now() - startedAt < options.thresholdMs;
  if (options.env["CALICO_BIRD_READY"] === "peers") {
    const sessions = bgpSessions(parseProtocols(await queryBird(version, options, "show protocols all"))).filter(
      ({ kind }) => kind === "mesh" || kind === "global" || kind === "node",
    );
    const down = sessions.filter(({ bgpState }) => bgpState !== "Established");
    const list = down.map(({ neighbor, name }) => neighbor ?? name).join(",");
    if (isStartingUp && down.length > 0) return fault(`BGP not established with ${list}`);
    if (!isStartingUp && sessions.length > 0 && down.length === sessions.length)
      return fault(`BGP not established with ${list}`);
  } else {
    const written = statSync(`${options.configFolder ?? CONFD_FOLDER}/${part}.cfg`, { throwIfNoEntry: false })?.mtimeMs;
    if (written === undefined) return fault("its configuration has not been written");
    const applied = birdTimeMs(status.lastReconfiguration);
    if (applied !== undefined && written > applied + APPLY_WITHIN_MS && Date.now() - written > APPLY_WITHIN_MS)
      return fault("its configuration has not been applied");
  }
  if (isStartingUp && status.isRecovering) {
    const pending = await pendingPeers(version, options, status);
    if (pending.length > 0) return fault(`graceful restart in progress: waiting for ${pending.join(",")}`);
  }
  return undefined;
}

const APPLY_WITHIN_MS = 5_000;
/** BIRD connects two seconds after its start and retries every five. */
const CONNECT_WITHIN_MS = 10_000;

/**
 * Returns the peers that readiness waits for after a restart of BIRD: connected peers that have not sent all their
 * routes, and, during the first `CONNECT_WITHIN_MS`, peers that are not connected. Later, a disconnected peer is assumed
 * to be down. BIRD itself waits for it for up to a minute, and until then keeps the kernel's routes unchanged.
 */
async function pendingPeers(
  version: IpVersion,
  options: ProbeOptions,
  { serverTime, lastReboot }: BirdStatus,
): Promise<readonly string[]> {
  const ageMs = (birdTimeMs(serverTime) ?? 0) - (birdTimeMs(lastReboot) ?? 0);
  const isConnectTimeOver = options.env["CALICO_BIRD_READY"] !== "peers" && ageMs >= CONNECT_WITHIN_MS;
  return bgpSessions(parseProtocols(await queryBird(version, options, "show protocols all")))
    .filter(
      ({ isRecoveryPending, bgpState }) => isRecoveryPending && (bgpState === "Established" || !isConnectTimeOver),
    )
    .map(({ neighbor, name }) => neighbor ?? name);
}

/** Parses a time that BIRD printed, which is local time. */
function birdTimeMs(text: string): number | undefined {
  const time = Date.parse(text.trim().replace(" ", "T"));
  return Number.isNaN(time) ? undefined : time;
}

async function queryBird(version: IpVersion, { sockets = BIRD_SOCKETS }: ProbeOptions, command: string) {
  using control = await connectBird(sockets[version]);
  return await control.request(command);
}
