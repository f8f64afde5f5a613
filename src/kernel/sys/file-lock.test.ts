import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { lockFile } from "./file-lock.ts";

async function withFolder(body: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "lock-"));
  try {
    await body(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("CI-046 the next waiting process gets the lock when the holder releases it", () =>
  withFolder(async (folder) => {
    const path = join(folder, "deeper", "ipam.lock");
    const order: string[] = [];
    const first = await lockFile(path);
    const second = lockFile(path).then((lock) => {
      order.push("second");
      return lock;
    });
    await new Promise((resolve) => setTimeout(resolve, 20));
    order.push("released");
    first[Symbol.dispose]();
    (await second)[Symbol.dispose]();
    expect(order).toEqual(["released", "second"]);
  }));

test("CI-046 waiting ends when the signal aborts", () =>
  withFolder(async (folder) => {
    using _held = await lockFile(join(folder, "l"));
    await expect(lockFile(join(folder, "l"), { signal: AbortSignal.timeout(10) })).rejects.toThrow();
  }));

test("CI-046 the lock of a killed process is released", () =>
  withFolder(async (folder) => {
    const path = join(folder, "l");
    const script = `const { lockFile } = await import(${JSON.stringify(join(import.meta.dir, "file-lock.ts"))});
      await lockFile(${JSON.stringify(path)}); console.log("held"); await new Promise(() => setInterval(() => {}, 1000));`;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "inherit" });
    const reader = child.stdout.getReader();
    await reader.read();
    await expect(lockFile(path, { signal: AbortSignal.timeout(30) })).rejects.toThrow();
    child.kill("SIGKILL");
    await child.exited;
    (await lockFile(path, { signal: AbortSignal.timeout(5000) }))[Symbol.dispose]();
  }));

test("after the holder has deleted the lock file, a waiting process locks the new file", () =>
  withFolder(async (folder) => {
    const path = join(folder, "l");
    const first = await lockFile(path);
    const waiting = lockFile(path);
    rmSync(path);
    first[Symbol.dispose]();
    using _second = await waiting;
    await expect(lockFile(path, { signal: AbortSignal.timeout(30) })).rejects.toThrow();
  }));
