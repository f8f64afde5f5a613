// What this node is called: told, remembered, or the host's own name.
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import type { Environment } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { NodeFailure } from "../failure.ts";

export interface NameSources {
  readonly env: Environment;
  readonly file: string;
  /** Undefined when there is no such file. */
  readonly readFile?: (path: string) => string | undefined;
  readonly hostname?: () => string;
}

export function nodeName(sources: NameSources, log: Logger): string {
  const told = (sources.env["NODENAME"] ?? "").trim();
  if (told !== "") return told;
  const remembered = ((sources.readFile ?? readIfThere)(sources.file) ?? "").trim();
  if (remembered !== "") return remembered;
  const host = (sources.env["HOSTNAME"] ?? "").trim().toLowerCase();
  if (host !== "") return host;
  const own = (sources.hostname ?? hostname)().trim().toLowerCase();
  log.warn("node name taken from the operating system; set NODENAME to keep it when that changes", { name: own });
  return own;
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new NodeFailure(`cannot read the node's name from ${path}`, { cause: error });
  }
}
