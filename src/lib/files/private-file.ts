// Writes files that other users must not read, such as a heap snapshot. The folder may be writable for all users (/tmp), so
// an existing file or symbolic link at the path is deleted, and never written to.
import { rmSync, writeFileSync } from "node:fs";

export function writePrivateFile(path: string, content: string | Uint8Array): void {
  rmSync(path, { force: true });
  writeFileSync(path, content, { flag: "wx", mode: 0o600 });
}
