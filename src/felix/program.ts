// calico-felix: runs the agent until it ends or must be restarted.
import type { Call } from "../lib/command-line/command.ts";
import { BUILD } from "../lib/process/build.ts";
import { applyEngineSettings } from "./engine-settings.ts";
import type { felixGrammar } from "./table.ts";

export async function run({ flags, io }: Call<typeof felixGrammar>): Promise<number> {
  if (flags.version) {
    io.out(`calico-felix ${BUILD.version} (${BUILD.commit})\n`);
    return 0;
  }
  if (!flags.dump) applyEngineSettings();
  const { runFelix } = await import("./daemon.ts");
  const code = await runFelix({ env: process.env, configFile: flags["config-file"], dump: flags.dump });
  // Felix is shut down; whatever still keeps the process running is not waited for.
  process.exit(code);
}
