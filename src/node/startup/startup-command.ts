// Implements calico-node -startup [-complete-startup].
import { runMode } from "../mode.ts";
import { readSettings } from "../settings.ts";
import { startUp } from "./startup.ts";

/** @param options.completes also reports that the network of the node is available */
export function runStartup(options: { readonly completes: boolean }): Promise<number> {
  return runMode("startup failed", async (log) => {
    const name = await startUp(process.env, log);
    if (options.completes) {
      const { reportNetworkUp } = await import("./network-condition.ts");
      await reportNetworkUp(readSettings(process.env), name, log, new AbortController().signal);
    }
  });
}
