// Reads standard input and writes standard output and error with system calls. For programs that run for milliseconds, such
// as the CNI plugin: loading `node:fs` takes over a millisecond.
import { EAGAIN, EINTR, errnoName } from "./errno.ts";
import { SyscallError } from "./kernel-error.ts";
import { allocate, POLLIN, POLLOUT, poll, read, readToEnd, write } from "./sys.ts";

/** Reads standard input to its end. */
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

/** Blocks until the reader has taken all of the text. */
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
