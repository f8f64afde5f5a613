// Files with what others must not read, such as an image of our memory. They may be asked for in a folder where all may
// write: what lies under the name already, a link too, is taken away and never written through.
import { rmSync, writeFileSync } from "node:fs";

export function writePrivateFile(path: string, content: string | Uint8Array): void {
  rmSync(path, { force: true });
  writeFileSync(path, content, { flag: "wx", mode: 0o600 });
}
