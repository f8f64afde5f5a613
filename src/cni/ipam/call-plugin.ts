// Runs other IPAM plugins as a container runtime would. https://www.cni.dev/docs/spec/#section-4-plugin-delegation
import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import { CniError, DECODING_FAILURE, INTERNAL } from "../error.ts";
import type { CniRequest, JsonObject } from "../request/request.ts";
import { type CniResult, parseResult } from "../request/result.ts";

const DELEGATE_TIMEOUT_MS = 60_000;

export async function delegateAdd(request: CniRequest, plugin: string, config: JsonObject): Promise<CniResult> {
  const output = await run(request, plugin, "ADD", config);
  let json: unknown;
  try {
    json = JSON.parse(output);
  } catch {
    throw new CniError(DECODING_FAILURE, `IPAM plugin ${plugin} did not print JSON`, output.slice(0, 200));
  }
  try {
    return parseResult(json);
  } catch (error) {
    // INTERNAL, because the runtime's request was valid: the fault is in the plugin or its configuration.
    const why = error instanceof Error ? error.message : String(error);
    throw new CniError(INTERNAL, `IPAM plugin ${plugin}: ${why}`, undefined, { cause: error });
  }
}

export async function delegateDel(request: CniRequest, plugin: string, config: JsonObject): Promise<void> {
  await run(request, plugin, "DEL", config);
}

export async function delegateCheck(request: CniRequest, plugin: string, config: JsonObject): Promise<void> {
  await run(request, plugin, "CHECK", config);
}

/** Returns the path of a plugin in CNI_PATH. The plugin must be a file name, not a path. */
function findPlugin(plugin: string, path: string): string {
  if (plugin === "") throw new CniError(INTERNAL, "no plugin name provided", "the configuration needs `ipam.type`");
  if (!/^[a-zA-Z0-9_.-]+$/.test(plugin) || plugin === "." || plugin === "..")
    throw new CniError(INTERNAL, `invalid plugin name: ${JSON.stringify(plugin)}`);
  for (const folder of path.split(":")) {
    if (!folder.startsWith("/")) continue; // a relative path would depend on the runtime's working directory
    const candidate = join(folder, plugin);
    try {
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch {
      // look in the next folder
    }
  }
  throw new CniError(INTERNAL, `failed to find plugin ${JSON.stringify(plugin)} in path [${path}]`);
}

function run(request: CniRequest, plugin: string, command: string, config: JsonObject): Promise<string> {
  const file = findPlugin(plugin, request.path);
  const env = {
    ...process.env,
    CNI_COMMAND: command,
    CNI_CONTAINERID: request.containerId,
    CNI_NETNS: request.netns,
    CNI_IFNAME: request.ifName,
    CNI_PATH: request.path,
    CNI_ARGS: `IgnoreUnknown=1;${request.argsText}`.replace(/;$/, ""),
  };
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const child = spawn(file, [], { env, stdio: ["pipe", "pipe", "inherit"] });
  const timer = setTimeout(() => child.kill("SIGKILL"), DELEGATE_TIMEOUT_MS);
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.on("error", (error) => reject(new CniError(INTERNAL, `cannot run IPAM plugin ${plugin}: ${error.message}`)));
  child.on("close", (code, signal) => {
    clearTimeout(timer);
    if (code === 0) resolve(output);
    else reject(failureOf(plugin, output, code, signal));
  });
  child.stdin.on("error", () => {}); // a plugin may exit without reading all input
  child.stdin.end(JSON.stringify(config));
  return promise;
}

/** Returns the plugin's own error unchanged, if it printed one. */
function failureOf(plugin: string, output: string, code: number | null, signal: string | null): CniError {
  try {
    const reply = JSON.parse(output) as { code?: unknown; msg?: unknown; details?: unknown };
    if (typeof reply.code === "number" && typeof reply.msg === "string")
      return new CniError(reply.code, reply.msg, typeof reply.details === "string" ? reply.details : undefined);
  } catch {
    // not JSON: reported below
  }
  const how = signal === null ? `exit code ${code}` : `signal ${signal}`;
  return new CniError(INTERNAL, `IPAM plugin ${plugin} failed with ${how}`, output.slice(0, 200));
}
