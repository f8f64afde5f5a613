import { expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Iptables, IptablesError } from "./iptables.ts";

/** Puts iptables tools on the PATH that log their arguments and input. */
async function withTool<T>(script: string, body: (log: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "calico-iptables-"));
  const path = process.env["PATH"];
  const log = join(folder, "log");
  for (const action of ["save", "restore"]) {
    const file = join(folder, `iptables-nft-${action}`);
    writeFileSync(file, `#!/bin/sh\necho "$@" >> ${log}\ncat >> ${log}\n${script}\n`);
    chmodSync(file, 0o755);
  }
  process.env["PATH"] = `${folder}:${path}`;
  try {
    return await body(log);
  } finally {
    process.env["PATH"] = path;
    rmSync(folder, { recursive: true, force: true });
  }
}

test("FD-031 restore passes the lock timeout and interval to the tool, the interval in microseconds", async () => {
  await withTool("exit 0", async (log) => {
    const lock = { timeoutSeconds: 10, probeMs: 50 };
    await new Iptables({ family: 4, variant: "nft", lock }).restore("*filter\nCOMMIT\n");
    await new Iptables({ family: 4, variant: "nft" }).restore("*raw\nCOMMIT\n");
    expect(readFileSync(log, "utf8").split("\n")).toEqual([
      "--noflush --verbose --wait 10 --wait-interval 50000",
      ...["*filter", "COMMIT"],
      "--noflush --verbose",
      ...["*raw", "COMMIT", ""],
    ]);
  });
});

test("FD-031 a lock that is not released in time is a transient error", async () => {
  await withTool('echo "Another app is currently holding the xtables lock" >&2; exit 4', async () => {
    const iptables = new Iptables({ family: 4, variant: "nft", lock: { timeoutSeconds: 1, probeMs: 50 } });
    const failure = await iptables.restore("*filter\nCOMMIT\n").catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(IptablesError);
    expect((failure as IptablesError).exitCode).toBe(4);
    expect((failure as IptablesError).isTransient).toBe(true);
  });
});

const failures = [
  [4, "Can't lock /run/xtables.lock: Resource temporarily unavailable", true],
  [1, "iptables-restore: Memory allocation problem.", true],
  [4, "line 3: RULE_APPEND failed (Cannot allocate memory): rule in chain p", true],
  [undefined, "", true],
  [4, "line 3: RULE_APPEND failed (No such file or directory): rule in chain p", false],
  [4, "line 3: RULE_APPEND failed (Invalid argument): rule in chain p", false],
  [2, "iptables-restore v1.8.9 (legacy): Set nosuch doesn't exist.", false],
  [2, "iptables-restore v1.8.9 (legacy): Couldn't load match `connlimit':No such file or directory", false],
  [1, "iptables-restore: line 4 failed", false],
] as const;
for (const [code, words, isTransient] of failures)
  test(`${words || "killed without a message"}: ${isTransient ? "transient" : "rejected"}`, () =>
    expect(new IptablesError("iptables-restore", code, words).isTransient).toBe(isTransient));
