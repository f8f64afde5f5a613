// Locks a lab, so that only one command at a time changes it. Two concurrent commands would create the same host twice and
// overwrite each other's changes of the record. The lock file is next to the lab's folder, so that it survives its removal.
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { type FileLock, lockFile } from "../kernel/index.ts";
import type { LabFolder } from "./folder.ts";
import { Lab } from "./lab.ts";
import { openTerminal } from "./terminal.ts";

const MESSAGE_DELAY_MS = 300;

export async function lockLab(folder: LabFolder): Promise<FileLock> {
  const timer = setTimeout(() => openTerminal({ fd: 2 }).line(describeHolder(folder)), MESSAGE_DELAY_MS);
  try {
    const lock = await lockFile(folder.lock);
    writeFileSync(folder.lock, `${process.pid}\n`);
    return lock;
  } finally {
    clearTimeout(timer);
  }
}

/** Locks a lab that must exist. */
export async function lockExisting(name: string): Promise<FileLock> {
  const { folder } = Lab.open(name);
  const lock = await lockLab(folder);
  try {
    Lab.open(name); // the previous holder of the lock may have removed the lab
    return lock;
  } catch (error) {
    rmSync(folder.lock, { force: true });
    lock[Symbol.dispose]();
    throw error;
  }
}

function describeHolder(folder: LabFolder): string {
  try {
    const pid = readFileSync(folder.lock, "utf8").trim();
    return `another command is changing lab ${folder.name} (process ${pid}); waiting until it ends`;
  } catch {
    return `another command is changing lab ${folder.name}; waiting until it ends`;
  }
}
