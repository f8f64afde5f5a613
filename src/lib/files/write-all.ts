// Writes all of a text to standard output or error before it returns.
import { writeSync } from "node:fs";

const OUTPUT: Readonly<Record<number, string>> = { 1: "standard output", 2: "standard error" };

/** Waits while the pipe is full. If the reader has closed the pipe, the rest is discarded. */
export function writeAll(fd: number, text: string): void {
  const bytes = Buffer.from(text);
  for (let done = 0; done < bytes.length; ) {
    try {
      done += writeSync(fd, bytes, done);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === "EPIPE") return;
      if (code !== "EAGAIN")
        throw new Error(`cannot write to ${OUTPUT[fd] ?? "the output"}: ${(error as Error).message}`);
      Bun.sleepSync(1);
    }
  }
}
