// Installs files on the host atomically: writes a temporary file in the same directory and renames it.
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { InstallError } from "./install-error.ts";

/** Copies a program, unless the target already has the same content. */
export function installProgram(source: string, target: string): "installed" | "unchanged" {
  if (isSameFile(source, target)) return "unchanged";
  const beside = `${target}.tmp`;
  rmSync(beside, { force: true });
  copyFileSync(source, beside);
  chmodSync(beside, statSync(source).mode & 0o7777);
  sync(beside);
  renameSync(beside, target); // works also while the old program is running
  if (!isSameFile(source, target)) throw new InstallError(`${target} differs from its source: is the disk full?`);
  return "installed";
}

/** Adds a second name for a program: a hard link, or a copy if the file system has no hard links. */
export function installLink(existing: string, target: string): void {
  if (existsSync(target) && statSync(target).ino === statSync(existing).ino) return;
  const beside = `${target}.tmp`;
  rmSync(beside, { force: true });
  try {
    linkSync(existing, beside);
  } catch {
    copyFileSync(existing, beside);
    chmodSync(beside, statSync(existing).mode & 0o7777);
  }
  renameSync(beside, target);
}

/** Writes a file that only root may read. */
export function writePrivateFile(path: string, text: string): void {
  const beside = `${path}.tmp`;
  rmSync(beside, { force: true });
  writeFileSync(beside, text, { mode: 0o600 });
  sync(beside);
  renameSync(beside, path);
}

export function isWritable(directory: string): boolean {
  try {
    accessSync(directory, constants.W_OK);
    return statSync(directory).isDirectory();
  } catch {
    return false;
  }
}

/** Compares size, mode and content. */
export function isSameFile(a: string, b: string): boolean {
  if (!existsSync(b)) return false;
  const [left, right] = [statSync(a), statSync(b)];
  if (left.ino === right.ino && left.dev === right.dev) return true;
  if (left.size !== right.size || left.mode !== right.mode) return false;
  const chunk = 1 << 20;
  const [bytesA, bytesB] = [Buffer.alloc(chunk), Buffer.alloc(chunk)];
  const [fdA, fdB] = [openSync(a, "r"), openSync(b, "r")];
  try {
    for (;;) {
      const length = readSync(fdA, bytesA, 0, chunk, null);
      if (length === 0) return true;
      let got = 0;
      while (got < length) {
        const more = readSync(fdB, bytesB, got, length - got, null);
        if (more === 0) return false;
        got += more;
      }
      if (bytesA.compare(bytesB, 0, length, 0, length) !== 0) return false;
    }
  } finally {
    closeSync(fdA);
    closeSync(fdB);
  }
}

function sync(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
