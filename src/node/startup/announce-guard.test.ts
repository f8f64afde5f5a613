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

for (const isThere of [true, false])
  test(`rules of another agent: ${isThere}`, async () => {
    using folder = new Folder();
    await announceAgent({ ...folder, env: {}, detectOtherAgent: async () => isThere }, silentLogger);
    expect(readGuardFile(folder.nodenameFile)).toEqual({ ...valid, hasRulesOfOtherAgent: isThere });
  });

test("if the rules in the kernel cannot be read, the plugin closes the host and an older guard file stays valid", async () => {
  using folder = new Folder();
  const lines: string[] = [];
  const log = createLogger({ level: "debug", write: (record) => void lines.push(formatText(record)) });
  writeFileSync(folder.guardFile, '{"interfacePrefixes":["cali"]}'); // of an earlier boot
  utimesSync(folder.guardFile, 1, 1);
  const detectOtherAgent = () => Promise.reject(new Error("iptables-legacy-save: exit code 1"));
  await announceAgent({ ...folder, env: {}, detectOtherAgent }, log);
  writeFileSync(folder.nodenameFile, "n1"); // the next step of the start
  expect(readGuardFile(folder.nodenameFile)).toEqual({ ...valid, hasRulesOfOtherAgent: false });
  expect(lines.join("\n")).toContain("iptables-legacy-save: exit code 1");
});

test("if the guard file cannot be written, the start fails before it writes the nodename file", async () => {
  using folder = new Folder();
  mkdirSync(join(folder.guardFile, "in-the-way"), { recursive: true });
  for (const env of [{}, { CALICO_DISABLE_FELIX: "true" }])
    await expect(
      announceAgent({ ...folder, env, detectOtherAgent: async () => false }, silentLogger),
    ).rejects.toMatchObject({ name: "NodeFailure", message: expect.stringContaining(folder.nodenameFile) });
});

test("a host without Felix has no guard file", async () => {
  using folder = new Folder();
  await announceAgent({ ...folder, env: {}, detectOtherAgent: async () => false }, silentLogger);
  await announceAgent({ ...folder, env: { CALICO_DISABLE_FELIX: "true" } }, silentLogger);
  expect(readGuardFile(folder.nodenameFile)).toEqual({ kind: "absent" });
});
