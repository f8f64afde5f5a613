// Handles the command-line flags of the CNI plugins, for manual calls.
import type { Call } from "../lib/command-line/command.ts";
import { processIo } from "../lib/command-line/io.ts";
import { runCommandLine } from "../lib/command-line/run.ts";
import { BUILD } from "../lib/process/build.ts";
import type { CniProgram } from "./request/request.ts";
import { IPAM_PLUGIN, type ipamPluginGrammar, NETWORK_PLUGIN, type networkPluginGrammar } from "./table.ts";
import { aboutText } from "./version.ts";

const TABLES: Readonly<Record<CniProgram, typeof NETWORK_PLUGIN>> = {
  calico: NETWORK_PLUGIN,
  "calico-ipam": IPAM_PLUGIN,
};

export const runPluginFlags = (program: CniProgram, argv: readonly string[]): Promise<number> =>
  runCommandLine({ program, root: TABLES[program], argv, io: processIo() });

export async function runIpamFlags({ flags, io }: Call<typeof ipamPluginGrammar>): Promise<number> {
  if (flags.upgrade) return (await import("./ipam/upgrade-from-host-local.ts")).main(process.env);
  io.out(flags.v ? `${BUILD.version}\n` : aboutText("calico-ipam"));
  return 0;
}

export async function runNetworkFlags({ flags, io }: Call<typeof networkPluginGrammar>): Promise<number> {
  if (flags.t) {
    const { checkDatastore } = await import("./check-datastore.ts");
    return checkDatastore(new TextDecoder().decode(io.readStdin()), io.env, io.out);
  }
  io.out(flags.v ? `${BUILD.version}\n` : aboutText("calico"));
  return 0;
}
