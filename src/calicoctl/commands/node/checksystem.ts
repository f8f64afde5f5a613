// Implements `calicoctl node checksystem`, which checks whether the kernel of this host has the features that the agent needs.
import { release } from "node:os";
import { openConntrack } from "../../../kernel/index.ts";
import type { Call } from "../../table/flags.ts";
import type { checksystemGrammar } from "../../table/node.ts";
import { Failure } from "../../command-line/failure.ts";
import { isKernelNewEnough, kernelFiles, moduleFinder, NEEDS } from "../../node/modules.ts";
import { requireRoot } from "../../node/processes.ts";

/** Whether conntrack's netlink interface works. The lists of modules may be missing on this host. */
function hasConntrackNetlink(): boolean {
  try {
    using conntrack = openConntrack();
    conntrack.list(6);
    return true;
  } catch {
    return false;
  }
}

export function run(call: Call<typeof checksystemGrammar>): number {
  requireRoot();
  const { out, err } = call.io;
  const version = release();
  const line = (what: string, verdict: string) => out(`\t\t${what.padEnd(20)}\t\t\t\t\t${verdict}\n`);
  out("Checking kernel version...\n");
  const newEnough = isKernelNewEnough(version);
  line(version, newEnough ? "OK" : "FAIL");
  out("Checking kernel modules...\n");
  const listed = moduleFinder(kernelFiles(version), call.flags["kernel-config"]);
  const has = (name: string) => listed(name) || (name === "nf_conntrack_netlink" && hasConntrackNetlink());
  const hasNft = has("nf_tables");
  const absent: string[] = [];
  const onlyForIptables: string[] = [];
  for (const { names, optional, onlyIptables } of NEEDS) {
    const found = names.find(has);
    if (found !== undefined) line(found, "OK");
    else if (onlyIptables && hasNft) {
      line(names.join("|"), "SKIP");
      onlyForIptables.push(names.join("|"));
    } else if (optional) {
      line(names.join("|"), "SKIP");
      err(`WARNING: Unable to detect the ${names.join("|")} module: features that need it do not work\n`);
    } else {
      line(names.join("|"), "FAIL");
      err(`WARNING: Unable to detect the ${names.join("|")} module as Loaded/Builtin module or lsmod\n`);
      absent.push(names.join("|"));
    }
  }
  if (onlyForIptables.length > 0)
    err(
      `${onlyForIptables.join(", ")}: needed only for iptables rules; this kernel has nf_tables, which is used unless NFTablesMode is Disabled\n`,
    );
  if (!newEnough || absent.length > 0)
    throw new Failure("System doesn't meet one or more minimum systems requirements to run Calico");
  out("System meets minimum system requirements to run Calico!\n");
  return 0;
}
