// Standard input and output by the kernel's own calls, for programs that live for milliseconds: loading `node:fs` would
// take longer than all they do.
import { EAGAIN, EINTR, errnoName } from "./errno.ts";
import { SyscallError } from "./netlink-error.ts";
import { allocate, POLLIN, POLLOUT, poll, read, readToEnd, write } from "./sys.ts";

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
