// Declares Typha's settings, and reads them from TYPHA_<NAME> in the environment, or else from an INI file. An invalid
// value is reported and replaced by the default, except for vital settings, where it stops the program.
import { existsSync, readFileSync } from "node:fs";

type Parse<T> = (text: string) => T;
interface Parameter<T> {
  readonly defaultValue: T;
  /** The value for the text `none`; undefined = `none` is invalid. */
  readonly none?: T;
  readonly parse: Parse<T>;
  /** An invalid value stops the program. */
  readonly isVital?: boolean;
}

class BadValue extends Error {}

const text = (defaultValue = ""): Parameter<string> => ({ defaultValue, none: "", parse: (value) => value });
const flag = (defaultValue: boolean): Parameter<boolean> => ({
  defaultValue,
  none: false,
  parse: (value) => {
    if (/^(true|1|yes|y|t)$/i.test(value)) return true;
    if (/^(false|0|no|n|f)$/i.test(value)) return false;
    throw new BadValue("want true or false");
  },
});
const integer = (defaultValue: number, least = -2147483648): Parameter<number> => ({
  defaultValue,
  ...(least <= 0 && { none: 0 }),
  parse: (value) => {
    const number = /^[+-]?(0x[0-9a-f]+|0o?[0-7]+|0b[01]+|\d+)$/i.test(value)
      ? Number(value.replace(/^([+-]?)0(?=[0-7])/, "$10o"))
      : Number.NaN;
    if (!Number.isInteger(number) || number < least || number > 2147483647)
      throw new BadValue(`want a whole number${least > -2147483648 ? ` from ${least}` : ""}`);
    return number;
  },
});
const port = (defaultValue: number): Parameter<number> => ({ ...integer(defaultValue, 0), none: 0 });
/** A number of seconds; the value is in milliseconds. */
const seconds = (defaultValue: number): Parameter<number> => ({
  defaultValue: defaultValue * 1000,
  none: 0,
  parse: (value) => {
    const number = value.trim() === "" ? Number.NaN : Number(value);
    if (!Number.isFinite(number)) throw new BadValue("want seconds, such as 1.5");
    return number * 1000;
  },
});
const oneOf = <T extends string>(defaultValue: T, choices: readonly T[], none?: T): Parameter<T> => ({
  defaultValue,
  ...(none !== undefined && { none }),
  parse: (value) => {
    const found = choices.find((choice) => choice.toLowerCase() === value.toLowerCase());
    if (found === undefined) throw new BadValue(`want one of ${choices.join(", ")}`);
    return found;
  },
});
const file = (): Parameter<string> => ({
  defaultValue: "",
  none: "",
  parse: (value) => {
    if (!existsSync(value)) throw new BadValue("there is no such file");
    return value;
  },
});
const endpoints = (): Parameter<readonly string[]> => ({
  defaultValue: [],
  none: [],
  parse: (value) => {
    const urls = value
      .split(",")
      .map((part) => part.trim())
      .filter((part) => part !== "");
    for (const url of urls) {
      const parsed = URL.canParse(url) ? new URL(url) : undefined;
      const isBare = parsed?.pathname === "/" && parsed.search === "" && parsed.username === "";
      if (!isBare || !["http:", "https:"].includes(parsed.protocol))
        throw new BadValue(`${url}: want http://host:port or https://host:port, without path or user`);
    }
    if (new Set(urls.map((url) => new URL(url).protocol)).size > 1)
      throw new BadValue("want the same scheme for all endpoints");
    return urls;
  },
});
const severity = () => oneOf("INFO", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "NONE"] as const, "NONE");

const PARAMETERS = {
  DatastoreType: { ...oneOf("etcdv3", ["etcdv3", "kubernetes", "sqlite"] as const), isVital: true },
  EtcdAddr: text("127.0.0.1:2379"),
  EtcdScheme: oneOf("http", ["http", "https"] as const),
  EtcdEndpoints: endpoints(),
  EtcdKeyFile: file(),
  EtcdCertFile: file(),
  EtcdCaFile: file(),
  LogFilePath: { ...text("/var/log/calico/typha.log"), isVital: true },
  LogSeverityFile: severity(),
  LogSeverityScreen: severity(),
  LogSeveritySys: severity(),
  HealthEnabled: flag(false),
  HealthHost: text("localhost"),
  HealthPort: port(9098),
  PrometheusMetricsEnabled: flag(false),
  PrometheusMetricsHost: text(),
  PrometheusMetricsPort: port(9093),
  PrometheusGoMetricsEnabled: flag(true),
  PrometheusProcessMetricsEnabled: flag(true),
  PrometheusMetricsCAFile: text(),
  PrometheusMetricsCertFile: text(),
  PrometheusMetricsKeyFile: text(),
  PrometheusMetricsClientAuth: oneOf("NoClientCert", [
    "NoClientCert",
    "RequireAndVerifyClientCert",
    "RequireAnyClientCert",
    "VerifyClientCertIfGiven",
  ] as const),
  SnapshotCacheMaxBatchSize: integer(100, 1),
  ServerMaxMessageSize: integer(100, 1),
  ServerMaxFallBehindSecs: seconds(300),
  ServerNewClientFallBehindGracePeriod: seconds(300),
  ServerMinBatchingAgeThresholdSecs: seconds(0.01),
  ServerPingIntervalSecs: seconds(10),
  ServerPongTimeoutSecs: seconds(60),
  ServerHandshakeTimeoutSecs: seconds(10),
  ServerWriteTimeoutSecs: seconds(120),
  ServerPort: port(0),
  ServerHost: text(),
  ServerKeyFile: text(),
  ServerCertFile: text(),
  CAFile: text(),
  ClientCN: text(),
  ClientURISAN: text(),
  ConnectionRebalancingMode: oneOf("none", ["none", "kubernetes"] as const, "none"),
  ConnectionDropIntervalSecs: seconds(1),
  ShutdownTimeoutSecs: seconds(300),
  ShutdownConnectionDropIntervalMaxSecs: seconds(1),
  MaxConnectionsUpperLimit: integer(10_000),
  MaxConnectionsLowerLimit: integer(400),
  K8sServicePollIntervalSecs: seconds(30),
  K8sNamespace: text("kube-system"),
  K8sServiceName: text("calico-typha"),
  K8sPortName: text("calico-typha"),
  DebugMemoryProfilePath: text(),
  DebugDisableLogDropping: flag(false),
  DebugHost: text("localhost"),
  DebugPort: port(0),
} as const;

type ValueOfParameter<P> = P extends Parameter<infer T> ? T : never;
export type TyphaConfig = { readonly [N in keyof typeof PARAMETERS]: ValueOfParameter<(typeof PARAMETERS)[N]> };

export class TyphaConfigError extends Error {
  override readonly name = "TyphaConfigError";
}

export interface LoadedConfig {
  readonly config: TyphaConfig;
  /** One message for each invalid value. */
  readonly warnings: readonly string[];
}

export function resolveConfig(env: Readonly<Record<string, string | undefined>>, fileText = ""): LoadedConfig {
  const warnings: string[] = [];
  const given = new Map<string, string>();
  for (const [name, value] of parseIni(fileText, warnings)) given.set(name.toLowerCase(), value);
  for (const [name, value] of Object.entries(env)) {
    const [, own] = /^typha_(.+)$/i.exec(name) ?? [];
    if (own !== undefined && value !== undefined && value !== "") given.set(own.toLowerCase(), value);
  }
  const config: Record<string, unknown> = {};
  for (const [name, parameter] of Object.entries<Parameter<unknown>>(PARAMETERS))
    config[name] = valueFor(name, parameter, given.get(name.toLowerCase()), warnings);
  return { config: config as TyphaConfig, warnings };
}

function valueFor(name: string, parameter: Parameter<unknown>, given: string | undefined, warnings: string[]): unknown {
  if (given === undefined || given === "") return parameter.defaultValue;
  try {
    if (given.toLowerCase() === "none") {
      if (!("none" in parameter)) throw new BadValue("cannot be none");
      return parameter.none;
    }
    return parameter.parse(given);
  } catch (error) {
    if (!(error instanceof BadValue)) throw error;
    const message = `${name}=${JSON.stringify(given)}: ${error.message}`;
    if (parameter.isVital === true) throw new TyphaConfigError(message);
    warnings.push(`${message}; using ${JSON.stringify(parameter.defaultValue)}`);
    return parameter.defaultValue;
  }
}

/** Returns "" for a missing file. */
export function readConfigFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return "";
    throw new TyphaConfigError(`cannot read ${path}`, { cause: error });
  }
}

function parseIni(fileText: string, warnings: string[]): Map<string, string> {
  const values = new Map<string, string>();
  for (const [i, raw] of fileText.split("\n").entries()) {
    const line = raw.trim();
    if (line === "" || /^[#;[]/.test(line)) continue;
    const [, name, value] = /^([^=:]+?)\s*[=:]\s*(.*)$/.exec(line) ?? [];
    if (name === undefined || value === undefined)
      throw new TyphaConfigError(`configuration file, line ${i + 1}: want name = value`);
    if (values.has(name)) warnings.push(`${name} is set twice in the configuration file; using the last value`);
    values.set(name, value);
  }
  return values;
}
