// What the environment says about the controllers. A variable that is set wins over the resource in the datastore; one
// that cannot be meant ends the program before anything is done.
import type { Environment } from "../datastore/index.ts";
import { parseDuration } from "../model/index.ts";
import { CERTIFICATE_USERS, type CertificateUser } from "./certificates/names.ts";

export class InvalidSetting extends Error {
  override readonly name = "InvalidSetting";
  constructor(variable: string, value: string, want: string) {
    super(`${variable}=${JSON.stringify(value)} cannot be meant: want ${want}`);
  }
}

const CONTROLLERS = ["node", "policy", "workloadEndpoint", "serviceAccount", "namespace", "loadBalancer"] as const;
export type ControllerName = (typeof CONTROLLERS)[number];

/** As they are spelled in ENABLED_CONTROLLERS. */
const SPELLINGS: Readonly<Record<string, ControllerName>> = {
  node: "node",
  policy: "policy",
  workloadendpoint: "workloadEndpoint",
  serviceaccount: "serviceAccount",
  namespace: "namespace",
  profile: "namespace",
  loadbalancer: "loadBalancer",
};

const LOG_LEVELS = {
  none: "None",
  debug: "Debug",
  trace: "Debug",
  info: "Info",
  warn: "Warning",
  warning: "Warning",
  error: "Error",
  fatal: "Fatal",
  panic: "Panic",
} as const;
export type LogSeverity = (typeof LOG_LEVELS)[keyof typeof LOG_LEVELS];

export interface EnvironmentSettings {
  readonly logSeverity?: LogSeverity;
  readonly reconcilerPeriodNs?: number;
  readonly enabled?: ReadonlySet<ControllerName>;
  readonly compactionPeriodNs?: number;
  readonly healthChecks?: "Enabled" | "Disabled";
  readonly syncLabels?: "Enabled" | "Disabled";
  readonly autoHostEndpoints?: "Enabled" | "Disabled";
  /** How long another replica waits for a sign of life. Ours alone: not among what the status shows. */
  readonly leaseMs?: number;
  /** How often datastore and API server are asked whether they answer. Ours alone too. */
  readonly healthMs?: number;
  /** Programs to create certificates for. Only calico-ts has this setting; the status does not show it. */
  readonly certificateUsers?: readonly CertificateUser[];
  /** The variables in force, as they were written. */
  readonly variables: Readonly<Record<string, string>>;
}

const TRUE = new Set(["1", "t", "T", "TRUE", "true", "True"]);
const FALSE = new Set(["0", "f", "F", "FALSE", "false", "False"]);

export function readEnvironment(env: Environment): EnvironmentSettings {
  const variables: Record<string, string> = {};
  const read = <T>(
    variable: string,
    want: string,
    parse: (text: string) => T | undefined,
    isShown = true,
  ): T | undefined => {
    const text = env[variable];
    if (text === undefined) return undefined;
    const value = parse(text);
    if (value === undefined) throw new InvalidSetting(variable, text, want);
    if (isShown) variables[variable] = text;
    return value;
  };
  const settings = {
    logSeverity: read("LOG_LEVEL", Object.keys(LOG_LEVELS).join(", "), parseLogLevel),
    reconcilerPeriodNs: read("RECONCILER_PERIOD", "a duration such as 5m", parsePeriod),
    enabled: read("ENABLED_CONTROLLERS", `some of ${Object.keys(SPELLINGS).join(", ")}, with commas`, parseControllers),
    compactionPeriodNs: read("COMPACTION_PERIOD", "a duration such as 10m", parsePeriod),
    healthChecks: read("HEALTH_ENABLED", "true or false", parseOnOff),
    syncLabels: read("SYNC_NODE_LABELS", "true or false", parseOnOff),
    autoHostEndpoints: read("AUTO_HOST_ENDPOINTS", "enabled or disabled", parseEnabled),
    leaseMs: read("CALICO_LEASE_DURATION", "a duration of a second or more such as 15s", parseSeconds, false),
    certificateUsers: read("CALICO_CERTIFICATES", `some of ${CERTIFICATE_USERS.join(", ")}`, parseUsers, false),
    healthMs: read("CALICO_HEALTH_PERIOD", "a duration of a second or more such as 10s", parseSeconds, false),
  };
  const given = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
  return { ...(given as Omit<EnvironmentSettings, "variables">), variables };
}

const parseLogLevel = (text: string): LogSeverity | undefined =>
  Object.entries(LOG_LEVELS).find(([name]) => name === text.toLowerCase())?.[1];

const parsePeriod = (text: string): number | undefined => {
  const ns = parseDuration(text);
  return ns === undefined || ns < 0 ? undefined : ns;
};

const parseSeconds = (text: string): number | undefined => {
  const ns = parseDuration(text);
  return ns === undefined || ns < 1e9 ? undefined : ns / 1e6;
};

/** Exactly as spelled, no blanks: a name that is not understood must not be passed over. */
function parseControllers(text: string): ReadonlySet<ControllerName> | undefined {
  const names = text.split(",").map((word) => (Object.hasOwn(SPELLINGS, word) ? SPELLINGS[word] : undefined));
  return names.every((name) => name !== undefined) ? new Set(names as ControllerName[]) : undefined;
}

function parseUsers(text: string): readonly CertificateUser[] | undefined {
  const names = text.split(",");
  return names.every((name): name is CertificateUser => CERTIFICATE_USERS.some((user) => user === name))
    ? [...new Set(names)]
    : undefined;
}

const parseOnOff = (text: string): "Enabled" | "Disabled" | undefined =>
  TRUE.has(text) ? "Enabled" : FALSE.has(text) ? "Disabled" : undefined;

const parseEnabled = (text: string): "Enabled" | "Disabled" | undefined =>
  text.toLowerCase() === "enabled" ? "Enabled" : text.toLowerCase() === "disabled" ? "Disabled" : undefined;
