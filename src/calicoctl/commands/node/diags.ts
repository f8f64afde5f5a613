// Implements `calicoctl node diags`, which collects diagnostics of this host in one archive.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Call } from "../../table/flags.ts";
import type { diagsGrammar } from "../../table/node.ts";
import { Failure } from "../../command-line/failure.ts";
import { copyArchive } from "../../diags/archive.ts";
import { HOST_COLLECTS, HOST_FILES } from "../../node/collects.ts";
import { isFelix, processesHere, requireRoot } from "../../node/processes.ts";

const COMMAND_TIMEOUT_MS = 20_000;
const MAX_OUTPUT = 1 << 28;

export function run(call: Call<typeof diagsGrammar>): number {
  requireRoot();
  const { out } = call.io;
  out("Collecting diagnostics\n");
  const work = mkdtempSync(join(tmpdir(), "calico-diags-"));
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "_");
  const name = `diags-${stamp}`;
  const folder = join(work, name);
  mkdirSync(join(folder, "diagnostics"), { recursive: true });
  try {
    for (const { pid } of processesHere().filter(isFelix)) requestDump(pid, out);
    for (const { file, command } of HOST_COLLECTS) collect(join(folder, "diagnostics", file), command, out);
    for (const file of HOST_FILES) if (existsSync(file)) cpSync(file, join(folder, "diagnostics", basename(file)));
    const logs = call.flags["log-dir"];
    if (existsSync(logs)) cpSync(logs, join(folder, "logs"), { recursive: true });
    else out(`No logs in ${logs}\n`);
    const made = join(work, "archive");
    const packed = spawnSync("tar", ["-C", work, "-czf", made, name], { encoding: "utf8" });
    if (packed.status !== 0) throw new Failure(`cannot pack ${folder}: ${packed.stderr}`);
    const archive = copyArchive(made, join(process.cwd(), name));
    out(`\nDiags saved to ${archive}\n`);
    return 0;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Makes Felix write its state to its log. */
function requestDump(pid: number, out: (text: string) => void): void {
  try {
    process.kill(pid, "SIGUSR1");
  } catch (error) {
    out(`Cannot signal Felix (process ${pid}): ${error instanceof Error ? error.message : String(error)}\n`);
  }
}

function collect(file: string, [program, ...args]: readonly [string, ...string[]], out: (text: string) => void): void {
  const result = spawnSync(program, args, { encoding: "utf8", timeout: COMMAND_TIMEOUT_MS, maxBuffer: MAX_OUTPUT });
  if (result.error !== undefined) {
    out(`Skipped ${program}: ${result.error.message}\n`);
    return;
  }
  writeFileSync(file, `${[program, ...args].join(" ")}\n\n${result.stdout}${result.stderr}`);
}
