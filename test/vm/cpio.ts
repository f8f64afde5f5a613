// Writes the archive that a kernel unpacks at boot. https://docs.kernel.org/driver-api/early-userspace/buffer-format.html

export interface CpioEntry {
  readonly path: string;
  /** Absent for a folder. */
  readonly content?: Uint8Array | string;
  readonly isExecutable?: boolean;
}

const FOLDER = 0o040755;
const FILE = 0o100644;
const PROGRAM = 0o100755;

export function cpioArchive(entries: readonly CpioEntry[]): Buffer {
  const all = [...entries.map((entry, i) => header(entry, i + 1)), header({ path: "TRAILER!!!", content: "" }, 0)];
  return Buffer.concat(all);
}

function header({ path, content, isExecutable }: CpioEntry, inode: number): Buffer {
  const data = content === undefined ? Buffer.alloc(0) : Buffer.from(content as Uint8Array);
  const mode = content === undefined ? FOLDER : isExecutable === true ? PROGRAM : FILE;
  const name = Buffer.from(`${path}\0`);
  const fields = [inode, mode, 0, 0, 1, 0, data.length, 0, 0, 0, 0, name.length, 0];
  const head = Buffer.from(`070701${fields.map((n) => n.toString(16).toUpperCase().padStart(8, "0")).join("")}`);
  return Buffer.concat([padded(Buffer.concat([head, name])), padded(data)]);
}

const padded = (bytes: Buffer): Buffer => Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);
