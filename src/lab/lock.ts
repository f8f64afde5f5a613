// One command at a time changes a lab: two at once would each make the same host, and each write the lab's record
// without what the other put there. The lock lies beside the lab's folder, so that it outlives the folder's removal.
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { type FileLock, lockFile } from "../kernel/index.ts";
import type { LabFolder } from "./folder.ts";
import { Lab } from "./lab.ts";
import { openTerminal } from "./terminal.ts";

const SAY_AFTER_MS = 300;

export async function lockLab(folder: LabFolder): Promise<FileLock> {
  const told = setTimeout(() => openTerminal({ fd: 2 }).line(whoHolds(folder)), SAY_AFTER_MS);
  try {
    const lock = await lockFile(folder.lock);
    writeFileSync(folder.lock, `${process.pid}\n`);
    return lock;
  } finally {
    clearTimeout(told);
  }
}

/** The same for a lab that must be there. */
export async function lockExisting(name: string): Promise<FileLock> {
  const { folder } = Lab.open(name);
  const lock = await lockLab(folder);
  try {
    Lab.open(name); // who held the lock may have removed it
    return lock;
  } catch (error) {
    rmSync(folder.lock, { force: true });
    lock[Symbol.dispose]();
    throw error;
  }
}

function whoHolds(folder: LabFolder): string {
  try {
    const pid = readFileSync(folder.lock, "utf8").trim();
    return `another command is changing lab ${folder.name} (process ${pid}); waiting until it ends`;
  } catch {
    return `another command is changing lab ${folder.name}; waiting until it ends`;
  }
}
