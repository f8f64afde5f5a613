// `calico-felix [-c FILE] [--version] [--dump]`: the node agent.
import { parseArgs } from "node:util";
import { BUILD } from "../lib/build.ts";
import { applyEngineSettings } from "./engine-settings.ts";

const USAGE = `usage: calico-felix [-c FILE | --config-file=FILE] [--dump] [--version]
  -c, --config-file   settings; /etc/calico/felix.cfg unless given, and none if there is no such file
  --dump              print what the dataplane would be told, one line of JSON each, and program nothing
  --version           say the version and end`;

export async function main(argv: readonly string[]): Promise<number> {
  let values: { "config-file"?: string; version?: boolean; dump?: boolean; help?: boolean };
  try {
    values = parseArgs({
      args: [...argv],
      options: {
        "config-file": { type: "string", short: "c" },
        version: { type: "boolean" },
        dump: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    }).values;
  } catch (error) {
    console.error(`calico-felix: ${error instanceof Error ? error.message : String(error)}\n${USAGE}`);
    return 1; // as the original does
  }
  if (values.help === true) {
    console.log(USAGE);
    return 0;
  }
  if (values.version === true) {
    console.log(`calico-felix ${BUILD.version} (${BUILD.commit})`);
    return 0;
  }
  if (values.dump !== true) applyEngineSettings();
  const { runFelix } = await import("./daemon.ts");
  const code = await runFelix({
    env: process.env,
    configFile: values["config-file"] ?? "/etc/calico/felix.cfg",
    dump: values.dump ?? false,
  });
  // Whatever still holds the process open has had its time.
  process.exit(code);
}

/** Takes Felix's work out of the kernel; loaded only for that. */
export async function removeFromKernel(
  ...given: Parameters<typeof import("./removal.ts").removeFromKernel>
): Promise<void> {
  return (await import("./removal.ts")).removeFromKernel(...given);
}
