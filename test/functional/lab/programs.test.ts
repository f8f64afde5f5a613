// Tests building a Kubernetes program into an empty cache, with warm Go caches: the log names the program.
import { afterAll, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { obtainPrograms, programPath } from "../../../src/lab/kubernetes/programs.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";

const PROGRAM = "containerd-shim-runc-v2";
const canRun = Bun.which("go") !== null && existsSync(programPath(PROGRAM));
if (!canRun) console.error("PROGRAM BUILD TEST SKIPPED: it needs Go, and the programs that make e2e builds");
const suite = canRun ? test : test.skip; // building without warm caches takes minutes

const folder = mkdtempSync(join(tmpdir(), "lab-programs-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

suite("the log names each program while it is built, and a cached program is not built again", async () => {
  const { XDG_CACHE_HOME, GOCACHE } = process.env;
  const log = join(folder, "log");
  const fd = openSync(log, "w");
  try {
    process.env["GOCACHE"] = execFileSync("go", ["env", "GOCACHE"], { encoding: "utf8" }).trim();
    process.env["XDG_CACHE_HOME"] = folder;
    const terminal = openTerminal({ fd, progressMs: 50 });
    await obtainPrograms([PROGRAM], terminal);
    expect(existsSync(programPath(PROGRAM))).toBe(true);
    const printed = readFileSync(log, "utf8");
    expect(printed).toMatch(/^ {2}✓ download github\.com\/containerd\/containerd\/v2 v[\d.]+ \d+\.\d\d s$/m);
    expect(printed).toMatch(/^ {2}… build containerd-shim-runc-v2 v[\d.]+ \(1 of 1, only once\), \d+ s$/m);
    expect(printed).toMatch(/^ {2}✓ build containerd-shim-runc-v2 v[\d.]+ \(1 of 1, only once\) \d+\.\d\d s$/m);
    await obtainPrograms([PROGRAM], terminal);
    expect(readFileSync(log, "utf8")).toBe(printed);
  } finally {
    closeSync(fd);
    restore("XDG_CACHE_HOME", XDG_CACHE_HOME);
    restore("GOCACHE", GOCACHE);
  }
}, 300_000);

function restore(name: string, value: string | undefined): void {
  if (value === undefined) delete process.env[name];
  else process.env[name] = value;
}
