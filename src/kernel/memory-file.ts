// A text as an open file that no name leads to: for a program that is started, what must stand neither in its arguments,
// nor in its environment, nor on a disk. https://man7.org/linux/man-pages/man2/memfd_create.2.html
import { closeSync, writeSync } from "node:fs";
import { succeed } from "./netlink-error.ts";
import { memfd } from "./sys.ts";

/** Open for reading from its beginning; whoever is given it closes it. */
export function memoryFile(name: string, text: string): { readonly fd: number } & Disposable {
  const fd = succeed(memfd(name), "make a file in memory");
  const bytes = Buffer.from(text);
  // At its place, not at the descriptor's: that stays at the beginning.
  for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, bytes.length - at, at);
  return { fd, [Symbol.dispose]: () => closeSync(fd) };
}
