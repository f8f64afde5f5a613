// Parses a call of the plugin from environment and standard input. Checks are in the same order as in the CNI project's
// `skel` library, so that the same error is reported first. https://www.cni.dev/docs/spec/#parameters
import { ADDRESS_ARGUMENTS, type CniArguments, parseCniArguments, WORKLOAD_ARGUMENTS } from "./arguments.ts";
import { CniError, DECODING_FAILURE, INCOMPATIBLE_VERSION, INVALID_CONFIG, INVALID_ENVIRONMENT } from "../error.ts";

export const SUPPORTED_VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const;
export type CniVersion = (typeof SUPPORTED_VERSIONS)[number];

export type CniCommand = "ADD" | "DEL" | "CHECK" | "STATUS" | "GC" | "VERSION";
export type Environment = Readonly<Record<string, string | undefined>>;
export type JsonObject = Readonly<Record<string, unknown>>;

export interface CniRequest {
  readonly command: CniCommand;
  /** May be empty for STATUS, GC and VERSION. */
  readonly containerId: string;
  /** Path of the network namespace; may be empty for DEL. */
  readonly netns: string;
  readonly ifName: string;
  /** CNI_PATH: directories of other plugins. */
  readonly path: string;
  readonly args: CniArguments;
  /** CNI_ARGS unchanged, for IPAM plugins that are called. */
  readonly argsText: string;
  readonly netnsOverride: boolean;
  readonly interfacePrefix: string;
  readonly config: JsonObject;
  readonly cniVersion: CniVersion;
  /** `calico` ignores unknown arguments, `calico-ipam` rejects them. */
  readonly program: CniProgram;
}
export type CniProgram = "calico" | "calico-ipam";

/** The required environment variables of each command. */
const REQUIRED: Readonly<Record<Exclude<CniCommand, "VERSION">, readonly string[]>> = {
  ADD: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
  DEL: ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
  CHECK: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
  STATUS: ["CNI_PATH"],
  GC: ["CNI_PATH"],
};

export function parseCommand(text: string): CniCommand {
  if (text === "VERSION" || Object.hasOwn(REQUIRED, text)) return text as CniCommand;
  throw new CniError(INVALID_ENVIRONMENT, `unknown CNI_COMMAND: ${text}`);
}

export function parseRequest(program: CniProgram, env: Environment, stdin: string): CniRequest {
  const command = parseCommand(env["CNI_COMMAND"] ?? "");
  if (command !== "VERSION") {
    const missing = REQUIRED[command].filter((name) => (env[name] ?? "") === "");
    if (missing.length > 0)
      throw new CniError(INVALID_ENVIRONMENT, `required env variables [${missing.join(",")}] missing`);
  }
  const config = parseConfig(stdin);
  const { containerId, ifName } = checkNames(command, env);
  checkNetworkName(textField(config, "name"));
  // Calico's defaults. Both versions have the same result format.
  const unversioned = program === "calico" ? "0.2.0" : "0.1.0";
  const cniVersion = checkVersion(command, textField(config, "cniVersion") || unversioned);
  const argsText = env["CNI_ARGS"] ?? "";
  const knownArgs = program === "calico-ipam" && command === "ADD" ? ADDRESS_ARGUMENTS : WORKLOAD_ARGUMENTS;
  return {
    program,
    command,
    containerId,
    ifName,
    netns: env["CNI_NETNS"] ?? "",
    path: env["CNI_PATH"] ?? "",
    args: parseCniArguments(argsText, program === "calico", knownArgs),
    argsText,
    netnsOverride: ["1", "true"].includes((env["CNI_NETNS_OVERRIDE"] ?? "").toLowerCase()),
    interfacePrefix: (env["FELIX_INTERFACEPREFIX"] ?? "").split(",")[0]?.trim() || "cali",
    config,
    cniVersion,
  };
}

function parseConfig(stdin: string): JsonObject {
  let config: unknown;
  try {
    config = JSON.parse(stdin) ?? {}; // null is an empty configuration, as in Go
  } catch (error) {
    const reason = stdin.trim() === "" ? "standard input is empty" : withoutQuotes((error as Error).message);
    throw new CniError(DECODING_FAILURE, `error unmarshall network config: ${reason}`);
  }
  if (typeof config !== "object" || config === null || Array.isArray(config))
    throw new CniError(DECODING_FAILURE, "error unmarshall network config: want a JSON object");
  return config as JsonObject;
}

/** Removes the part of the input that the parser quotes, because it may contain a part of a token. */
const withoutQuotes = (message: string): string => message.replace(/\s*["'].*$/s, "");

/** Keys are matched without regard to case; the last one applies, as in Go. A missing or null value is empty. */
function textField(config: JsonObject, name: string): string {
  const lower = name.toLowerCase();
  const [, value = ""] = Object.entries(config).findLast(([key]) => key.toLowerCase() === lower) ?? [];
  if (value === null) return "";
  if (typeof value === "string") return value;
  throw new CniError(DECODING_FAILURE, `error unmarshall network config: ${name}: want text`);
}

function checkNetworkName(name: string): void {
  if (name === "") throw new CniError(INVALID_CONFIG, "missing network name", "the configuration needs a `name`");
  if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(name))
    throw new CniError(INVALID_CONFIG, "invalid characters found in network name", name);
}

function checkNames(command: CniCommand, env: Environment): { containerId: string; ifName: string } {
  const containerId = env["CNI_CONTAINERID"] ?? "";
  const ifName = env["CNI_IFNAME"] ?? "";
  if (command !== "ADD" && command !== "DEL" && command !== "CHECK") return { containerId, ifName };
  if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(containerId))
    throw new CniError(INVALID_ENVIRONMENT, "invalid characters in containerID", containerId);
  if (ifName.length > 15)
    throw new CniError(INVALID_ENVIRONMENT, "interface name is too long", "at most 15 characters");
  if (ifName === "." || ifName === "..") throw new CniError(INVALID_ENVIRONMENT, "interface name is . or ..", "");
  if (/[/:\s\0]/.test(ifName))
    throw new CniError(INVALID_ENVIRONMENT, "interface name contains / or : or whitespace characters", ifName);
  return { containerId, ifName };
}

function checkVersion(command: CniCommand, version: string): CniVersion {
  const known = SUPPORTED_VERSIONS.find((supported) => supported === version);
  if (known === undefined) {
    const list = SUPPORTED_VERSIONS.map((v) => JSON.stringify(v)).join(" ");
    throw new CniError(
      INCOMPATIBLE_VERSION,
      "incompatible CNI versions",
      `config is ${JSON.stringify(version)}, plugin supports [${list}]`,
    );
  }
  const rank = SUPPORTED_VERSIONS.indexOf(known);
  const needed = { CHECK: "0.4.0", STATUS: "1.1.0", GC: "1.1.0" }[command as string];
  if (needed !== undefined && rank < SUPPORTED_VERSIONS.indexOf(needed as CniVersion))
    throw new CniError(INCOMPATIBLE_VERSION, `config version does not allow ${command}`, `it needs ${needed} or later`);
  return known;
}
