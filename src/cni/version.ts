// What the plugins say of themselves. Apart from the commands: a runtime asks for the versions before every pod, and the
// answer needs nothing else to be loaded.
import { BUILD } from "../lib/process/build.ts";
import { type CniProgram, type JsonObject, SUPPORTED_VERSIONS } from "./request/request.ts";

/**
 * The versions we speak. 1.1.0 brought STATUS and GC; a runtime that says it speaks an older version is told what the
 * original's plugin tells it.
 */
export function versionReply(stdin: string): string {
  const asks = tryParse(stdin)?.["cniVersion"];
  const isOld = typeof asks === "string" && asks !== "" && asks !== "1.1.0";
  const supportedVersions = SUPPORTED_VERSIONS.filter((version) => version !== "1.1.0" || !isOld);
  return JSON.stringify({ cniVersion: "1.1.0", supportedVersions });
}

function tryParse(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as JsonObject) : undefined;
  } catch {
    return undefined; // VERSION answers whatever it was given
  }
}

export const aboutText = (program: CniProgram): string =>
  `Calico CNI ${program === "calico" ? "plugin" : "IPAM"} ${BUILD.version}\nCNI protocol versions supported: ${SUPPORTED_VERSIONS.join(", ")}\n`;
