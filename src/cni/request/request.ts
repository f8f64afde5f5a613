// One call of the plugin: what the runtime said by environment and standard input, checked in the order the field's
// own library checks it. https://www.cni.dev/docs/spec/#parameters
import { ADDRESS_ARGUMENTS, type CniArguments, parseCniArguments, WORKLOAD_ARGUMENTS } from "./arguments.ts";
import { CniError, DECODING_FAILURE, INCOMPATIBLE_VERSION, INVALID_CONFIG, INVALID_ENVIRONMENT } from "../error.ts";

export const SUPPORTED_VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const;
export type CniVersion = (typeof SUPPORTED_VERSIONS)[number];

export type CniCommand = "ADD" | "DEL" | "CHECK" | "STATUS" | "GC" | "VERSION";
export type Environment = Readonly<Record<string, string | undefined>>;
export type JsonObject = Readonly<Record<string, unknown>>;

export interface CniRequest {
  readonly command: CniCommand;
  /** Empty where the command needs none. */
  readonly containerId: string;
  /** Path of the network namespace; empty when a DEL came without. */
  readonly netns: string;
  readonly ifName: string;
  /** Where other plugins lie. */
  readonly path: string;
  readonly args: CniArguments;
  /** CNI_ARGS as it came, for plugins we call. */
  readonly argsText: string;
  readonly netnsOverride: boolean;
  readonly interfacePrefix: string;
  readonly config: JsonObject;
  readonly cniVersion: CniVersion;
  /** Who asks: `calico` forgives arguments it does not know, `calico-ipam` does not. */
  readonly program: CniProgram;
}
export type CniProgram = "calico" | "calico-ipam";

/** Which variables each command cannot do without. */
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
  // Without a version each program answers in another of the two that have the same form.
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
    config = JSON.parse(stdin) ?? {}; // null is a configuration in which everything is missing
  } catch (error) {
    const reason = stdin.trim() === "" ? "standard input is empty" : withoutQuotes((error as Error).message);
    throw new CniError(DECODING_FAILURE, `error unmarshall network config: ${reason}`);
  }
  if (typeof config !== "object" || config === null || Array.isArray(config))
    throw new CniError(DECODING_FAILURE, "error unmarshall network config: want a JSON object");
  return config as JsonObject;
}

/** The parser quotes what it does not expect, which may be a part of a token. */
const withoutQuotes = (message: string): string => message.replace(/\s*["'].*$/s, "");

/** Found without regard to case like every key, the last one counting; absent and null are the empty text. */
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
