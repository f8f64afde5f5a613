// Reports the supported CNI versions and the plugin's version. This is a separate file because runtimes call VERSION before
// every pod start, and the reply should not load other modules.
import { BUILD } from "../lib/process/build.ts";
import { type CniProgram, type JsonObject, SUPPORTED_VERSIONS } from "./request/request.ts";

/** Returns the supported versions. Like Calico, leaves out 1.1.0 if the runtime's own version is older. */
export function versionReply(stdin: string): string {
  const requested = tryParse(stdin)?.["cniVersion"];
  const isOld = typeof requested === "string" && requested !== "" && requested !== "1.1.0";
  const supportedVersions = SUPPORTED_VERSIONS.filter((version) => version !== "1.1.0" || !isOld);
  return JSON.stringify({ cniVersion: "1.1.0", supportedVersions });
}

function tryParse(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as JsonObject) : undefined;
  } catch {
    return undefined; // VERSION succeeds with any input
  }
}

export const aboutText = (program: CniProgram): string =>
  `Calico CNI ${program === "calico" ? "plugin" : "IPAM"} ${BUILD.version}\nCNI protocol versions supported: ${SUPPORTED_VERSIONS.join(", ")}\n`;
