// Implements `calicoctl cluster diags`, which collects diagnostics in one archive. It runs kubectl with the user's own
// rights; if a kubectl command fails, the file contains its error.
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Call } from "../table/flags.ts";
import type { clusterDiagsGrammar } from "../table/cluster.ts";
import { copyArchive } from "../diags/archive.ts";
import { calicoPods, choosePods, clusterCollects, type Collect, podCollects } from "../diags/plan.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { Failure } from "../command-line/failure.ts";

const MAX_OUTPUT_BYTES = 256 * 1024 * 1024;
const KUBECTL_TIMEOUT_MS = 120_000;

interface KubectlResult {
  readonly ok: boolean;
  readonly out: string;
  readonly err: string;
}
type Kubectl = (args: readonly string[]) => Promise<KubectlResult>;

export async function run(call: Call<typeof clusterDiagsGrammar>): Promise<number> {
  const { flags, io } = call;
  const since = flags.since;
  if (since !== undefined && !/^[0-9]+[smh]$/.test(since))
    throw new UsageError(`invalid --since ${since}: want a number and s, m or h, such as 30m`);
  const { "max-logs": maxLogs, "max-parallelism": parallel } = flags;
  const focus = (flags["focus-nodes"] ?? "").split(",").filter((node) => node !== "");
  const context = flags.context;
  const kubectl = kubectlWith(io.env, context === undefined ? [] : ["--context", context]);
  if (!(await kubectl(["version", "--client"])).ok)
    throw new Failure("cluster diags needs kubectl: install it in a directory of PATH");

  const name = `calico-diagnostics-${stamp(new Date())}`;
  const scratch = mkdtempSync(join(tmpdir(), "calico-diags-"));
  try {
    const folder = join(scratch, name);
    io.out("Collecting diagnostics...\n");
    const failedOfCluster = await collect(kubectl, folder, clusterCollects(), parallel);
    const pods = await kubectl(["get", "pods", "--all-namespaces", "-o", "json"]);
    if (!pods.ok) io.err(`kubectl cannot list pods: ${pods.err.trim().split("\n").at(-1)}\n`);
    const chosen = pods.ok ? choosePods(calicoPods(JSON.parse(pods.out)), focus, maxLogs) : [];
    const logs = chosen.flatMap((pod) => podCollects(pod, since));
    const failed = failedOfCluster + (await collect(kubectl, folder, logs, parallel));
    await tar(join(scratch, "archive"), scratch, name);
    const archive = copyArchive(join(scratch, "archive"), name);
    io.out(
      `Diagnostics of ${chosen.length} pods collected${failed > 0 ? `, ${failed} kubectl commands failed` : ""}.\n`,
    );
    io.out(`Diags saved to ./${archive}\n`);
    if (flags["skip-temp-dir-cleanup"]) io.out(`Files kept in ${folder}\n`);
    return pods.ok ? 0 : 1;
  } finally {
    if (!flags["skip-temp-dir-cleanup"]) rmSync(scratch, { recursive: true, force: true });
  }
}

const stamp = (time: Date) => time.toISOString().replace(/[-:]/g, "").replace("T", "_").slice(0, 15);

function kubectlWith(env: Readonly<Record<string, string | undefined>>, first: readonly string[]): Kubectl {
  return (args) =>
    new Promise((resolve) => {
      const options = { env: env as NodeJS.ProcessEnv, maxBuffer: MAX_OUTPUT_BYTES, timeout: KUBECTL_TIMEOUT_MS };
      execFile("kubectl", [...first, ...args], options, (error, out, err) =>
        resolve({ ok: error === null, out, err: err || (error === null ? "" : error.message) }),
      );
    });
}

/** Runs the kubectl commands and writes their output to files. Returns the number of commands that failed. */
async function collect(kubectl: Kubectl, folder: string, list: readonly Collect[], parallel: number): Promise<number> {
  const waiting = [...list];
  let failed = 0;
  const worker = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { ok, out, err } = await kubectl(next.args);
      if (!ok) failed++;
      const path = join(folder, next.file);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, ok ? out : `${out}\nkubectl ${next.args.join(" ")} failed:\n${err}\n`);
    }
  };
  await Promise.all(Array.from({ length: parallel }, worker));
  return failed;
}

function tar(archive: string, folder: string, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile("tar", ["-czf", archive, "-C", folder, name], (error, _out, err) =>
      error === null ? resolve() : reject(new Failure(`cannot write ${archive}: ${err || error.message}`)),
    );
  });
}
