// Reads the controllers' settings from the environment. A variable overrides the resource in the datastore. An invalid value
// ends the program before it does anything.
import type { Environment } from "../datastore/index.ts";
import { parseDuration } from "../model/index.ts";
import { CERTIFICATE_USERS, type CertificateUser } from "./certificates/names.ts";

export class InvalidSetting extends Error {
  override readonly name = "InvalidSetting";
  constructor(variable: string, value: string, want: string) {
    super(`${variable}=${JSON.stringify(value)} is invalid: want ${want}`);
  }
}

const CONTROLLERS = ["node", "policy", "workloadEndpoint", "serviceAccount", "namespace", "loadBalancer"] as const;
export type ControllerName = (typeof CONTROLLERS)[number];

/** By the names that ENABLED_CONTROLLERS accepts. */
const CONTROLLERS_BY_NAME: Readonly<Record<string, ControllerName>> = {
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
  /** Duration of the leader lease. Only calico-ts has this setting; the status does not show it. */
  readonly leaseMs?: number;
  /** Interval of the health checks. Only calico-ts has this setting; the status does not show it. */
  readonly healthMs?: number;
  /** Programs to create certificates for. Only calico-ts has this setting; the status does not show it. */
  readonly certificateUsers?: readonly CertificateUser[];
  /** The variables that are set, with their unparsed values, for the status. */
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
    enabled: read(
      "ENABLED_CONTROLLERS",
      `some of ${Object.keys(CONTROLLERS_BY_NAME).join(", ")}, separated by commas`,
      parseControllers,
    ),
    compactionPeriodNs: read("COMPACTION_PERIOD", "a duration such as 10m", parsePeriod),
    healthChecks: read("HEALTH_ENABLED", "true or false", parseOnOff),
    syncLabels: read("SYNC_NODE_LABELS", "true or false", parseOnOff),
    autoHostEndpoints: read("AUTO_HOST_ENDPOINTS", "enabled or disabled", parseEnabled),
    leaseMs: read("CALICO_LEASE_DURATION", "a duration of a second or more such as 15s", parseSeconds, false),
    certificateUsers: read("CALICO_CERTIFICATES", `some of ${CERTIFICATE_USERS.join(", ")}`, parseUsers, false),
    healthMs: read("CALICO_HEALTH_PERIOD", "a duration of a second or more such as 10s", parseSeconds, false),
  };
  const configured = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
  return { ...(configured as Omit<EnvironmentSettings, "variables">), variables };
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

/** Names must match exactly, without spaces: an unknown name is an error and is not ignored. */
function parseControllers(text: string): ReadonlySet<ControllerName> | undefined {
  const names = text
    .split(",")
    .map((name) => (Object.hasOwn(CONTROLLERS_BY_NAME, name) ? CONTROLLERS_BY_NAME[name] : undefined));
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
