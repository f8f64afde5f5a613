// Standard input and output by the kernel's own calls, for programs that live for milliseconds: loading `node:fs` would
// take longer than all they do.
import { EAGAIN, EINTR, errnoName } from "./errno.ts";
import { SyscallError } from "./netlink-error.ts";
import { allocate, type Bytes, close, dup, openReadOnly, POLLIN, POLLOUT, poll, read, write } from "./sys.ts";

/** Everything until the end of standard input, as text. */
export function readStandardInput(): string {
  const bytes = readToEnd((piece) => {
    const length = read(0, piece);
    if (length !== -EAGAIN) return length;
    poll([{ fd: 0, events: POLLIN }], -1);
    return -EINTR;
  });
  if (typeof bytes === "number") throw new SyscallError("read standard input", errnoName(-bytes));
  return new TextDecoder().decode(bytes);
}

/** Whatever standard input was is open here no longer. */
export function leaveStandardInput(): void {
  const nothing = openReadOnly("/dev/null");
  if (nothing < 0) throw new SyscallError("open /dev/null", errnoName(-nothing));
  dup(nothing, 0);
  close(nothing);
}

/**
 * Everything until the end, or minus the errno.
 * @param fill reads some bytes: how many, 0 at the end, minus the errno
 */
function readToEnd(fill: (piece: Bytes) => number): Bytes | number {
  let buffer = allocate(16 * 1024);
  for (let total = 0; ; ) {
    if (total === buffer.length) {
      const grown = allocate(buffer.length * 2);
      grown.set(buffer);
      buffer = grown;
    }
    const length = fill(buffer.subarray(total));
    if (length === -EINTR) continue;
    if (length < 0) return length;
    if (length === 0) return buffer.subarray(0, total);
    total += length;
  }
}

/** All of the text, however slowly the reader takes it. */
export const writeStandardOutput = (text: string): void => writeAll(1, text);
export const writeStandardError = (text: string): void => writeAll(2, text);

function writeAll(fd: 1 | 2, text: string): void {
  const encoded = new TextEncoder().encode(text);
  let bytes = allocate(encoded.length);
  bytes.set(encoded);
  while (bytes.length > 0) {
    const length = write(fd, bytes);
    if (length === -EAGAIN) poll([{ fd, events: POLLOUT }], -1);
    else if (length < 0 && length !== -EINTR)
      throw new SyscallError(`write to standard ${fd === 1 ? "output" : "error"}`, errnoName(-length));
    else if (length > 0) bytes = bytes.slice(length);
  }
}
