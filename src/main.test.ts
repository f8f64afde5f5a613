import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "main-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("started without a umask, it writes nothing that all may write", () => {
  const times = join(folder, "times");
  const { exitCode } = Bun.spawnSync(
    ["sh", "-c", 'umask 0; exec "$@"', "sh", process.execPath, join(import.meta.dir, "main.ts")],
    {
      env: { PATH: process.env["PATH"], CNI_COMMAND: "VERSION", CALICO_CNI_TIMES: times },
      stdin: new TextEncoder().encode('{"cniVersion":"1.0.0","name":"n"}'),
    },
  );
  expect(exitCode).toBe(0);
  expect(statSync(times).mode & 0o777).toBe(0o644);
});
