// Selects the program to run by the name with which the executable was called, and imports it. Eager imports of all
// programs would take longer than everything else that a short command does. Only the CNI plugin is imported eagerly: it
// runs for every pod and is small, and a lazy import would delay it.
import { main as calicoPlugin } from "./cni/calico.ts";
import { loadMain, PROGRAMS } from "./programs.ts";

async function run(): Promise<number> {
  // Some container runtimes start programs without a umask; files and directories must not be writable by everybody.
  process.umask(process.umask() | 0o022);
  const argv = process.argv.slice(2);
  const name = process.argv0.slice(process.argv0.lastIndexOf("/") + 1); // node:path takes half a millisecond to load
  const program = programCalled(name);
  if (program === "calico" && isCniCall(argv)) return calicoPlugin(argv);
  return (await loadMain(program))(argv);
}

function programCalled(name: string): string {
  if (name.startsWith("kubectl-")) return "kubectl-calico"; // the user chooses the rest of a plugin's name
  return Object.hasOwn(PROGRAMS, name) ? name : "calico";
}

/** A container runtime gives no arguments. The names of commands are not flags of the plugin, whatever the environment. */
const isCniCall = ([first = "-"]: readonly string[]): boolean =>
  (process.env["CNI_COMMAND"] ?? "") !== "" && first.startsWith("-");

process.exitCode = await run();
