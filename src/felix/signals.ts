// Handles signals: SIGTERM and SIGINT exit, SIGHUP restarts, SIGUSR1 and SIGUSR2 write profiles.
import type { Logger } from "../lib/log/log.ts";
import { describeError } from "../lib/log/log.ts";
import type { FelixConfig } from "../model/index.ts";
import { profilePath, writeCpuProfile, writeHeapProfile } from "./profiles.ts";
import { restart, type Shutdown, stopSignal } from "./shutdown.ts";

export interface SignalHandlers {
  /** Must be called when the settings are loaded. */
  configure(config: Pick<FelixConfig, "DebugMemoryProfilePath" | "DebugCPUProfilePath">, log: Logger): void;
  remove(): void;
}

export function handleSignals(shutdown: Shutdown, earlyLog: Logger): SignalHandlers {
  let log = earlyLog;
  let config: Pick<FelixConfig, "DebugMemoryProfilePath" | "DebugCPUProfilePath"> | undefined;
  const profile = async (path: string | undefined, write: (path: string) => Promise<void>) => {
    if (path === undefined || path === "") return;
    const file = profilePath(path, new Date());
    try {
      await write(file);
      log.info("wrote a profile", { file });
    } catch (error) {
      log.error("could not write a profile", { file, error: describeError(error) });
    }
  };
  const handlers = {
    SIGTERM: () => shutdown.request(stopSignal("SIGTERM")),
    SIGINT: () => shutdown.request(stopSignal("SIGINT")),
    SIGHUP: () => shutdown.request(restart("received SIGHUP")),
    SIGUSR1: () => void profile(config?.DebugMemoryProfilePath, writeHeapProfile),
    SIGUSR2: () => void profile(config?.DebugCPUProfilePath, writeCpuProfile),
  } as const;
  for (const [signal, handler] of Object.entries(handlers)) process.on(signal, handler);
  return {
    configure: (newConfig, newLog) => {
      config = newConfig;
      log = newLog;
    },
    remove: () => {
      for (const [signal, handler] of Object.entries(handlers)) process.off(signal, handler);
    },
  };
}
