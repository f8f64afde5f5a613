import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readGuardFile } from "../../kernel/index.ts";
import { createLogger, formatText, silentLogger } from "../../lib/log/log.ts";
import { announceAgent } from "./announce-guard.ts";

class Folder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "announce-guard-"));
  readonly nodenameFile = join(this.path, "nodename");
  readonly guardFile = join(this.path, "guard");
  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true });
  }
}

const valid = { kind: "valid", interfacePrefixes: ["cali"] } as const;

for (const exists of [true, false])
  test(`the guard file has hasRulesOfOtherAgent=${exists}`, async () => {
    using folder = new Folder();
    await announceAgent({ ...folder, env: {}, detectOtherAgent: async () => exists }, silentLogger);
    expect(readGuardFile(folder.nodenameFile)).toEqual({ ...valid, hasRulesOfOtherAgent: exists });
  });

test("if the kernel's rules cannot be read, the guard file makes the CNI plugin drop packets of workloads", async () => {
  using folder = new Folder();
  const lines: string[] = [];
  const log = createLogger({ level: "debug", write: (record) => void lines.push(formatText(record)) });
  writeFileSync(folder.guardFile, '{"interfacePrefixes":["cali"]}'); // from an earlier boot
  utimesSync(folder.guardFile, 1, 1);
  const detectOtherAgent = () => Promise.reject(new Error("iptables-legacy-save: exit code 1"));
  await announceAgent({ ...folder, env: {}, detectOtherAgent }, log);
  writeFileSync(folder.nodenameFile, "n1"); // the next step of the startup
  expect(readGuardFile(folder.nodenameFile)).toEqual({ ...valid, hasRulesOfOtherAgent: false });
  expect(lines.join("\n")).toContain("iptables-legacy-save: exit code 1");
});

test("if the guard file cannot be written, startup fails before it writes the nodename file", async () => {
  using folder = new Folder();
  mkdirSync(join(folder.guardFile, "in-the-way"), { recursive: true });
  for (const env of [{}, { CALICO_DISABLE_FELIX: "true" }])
    await expect(
      announceAgent({ ...folder, env, detectOtherAgent: async () => false }, silentLogger),
    ).rejects.toMatchObject({ name: "FatalNodeError", message: expect.stringContaining(folder.nodenameFile) });
});

test("a host without Felix has no guard file", async () => {
  using folder = new Folder();
  await announceAgent({ ...folder, env: {}, detectOtherAgent: async () => false }, silentLogger);
  await announceAgent({ ...folder, env: { CALICO_DISABLE_FELIX: "true" } }, silentLogger);
  expect(readGuardFile(folder.nodenameFile)).toEqual({ kind: "absent" });
});
