// Determines the node's name: NODENAME, else the nodename file of an earlier startup, else the host name.
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import type { Environment } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { FatalNodeError } from "../failure.ts";

export interface NameSources {
  readonly env: Environment;
  readonly file: string;
  /** Returns undefined if the file does not exist. */
  readonly readFile?: (path: string) => string | undefined;
  readonly hostname?: () => string;
}

export function nodeName(sources: NameSources, log: Logger): string {
  const configured = (sources.env["NODENAME"] ?? "").trim();
  if (configured !== "") return configured;
  const saved = ((sources.readFile ?? readIfExists)(sources.file) ?? "").trim();
  if (saved !== "") return saved;
  const host = (sources.env["HOSTNAME"] ?? "").trim().toLowerCase();
  if (host !== "") return host;
  const own = (sources.hostname ?? hostname)().trim().toLowerCase();
  log.warn(
    "using the operating system's host name as node name; set NODENAME to keep the name if the host name changes",
    { name: own },
  );
  return own;
}

function readIfExists(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new FatalNodeError(`cannot read the node's name from ${path}`, { cause: error });
  }
}
