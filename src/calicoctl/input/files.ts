// Reads the files of an input. Text that is not UTF-8 and documents that are too large are rejected before they are parsed.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import type { CommandIo } from "../../lib/command-line/io.ts";
import { Failure } from "../command-line/failure.ts";
import { InputFault } from "./fault.ts";
import { documentAt, lineAt } from "./place.ts";

export interface Source {
  readonly file: string;
  readonly text: string;
}

const MAX_DOCUMENT_BYTES = 10 * 1024 * 1024;

/** @param filename a file, a directory, or `-` */
export function readSources(filename: string, options: { readonly recursive: boolean }, io: CommandIo): Source[] {
  if (filename === "-") return [{ file: "-", text: decode("-", io.readStdin()) }];
  return listFiles(filename, options.recursive).map((file) => ({ file, text: decode(file, read(file)) }));
}

/** Returns a file itself, or the YAML and JSON files of a directory in the order of their names. */
function listFiles(path: string, recursive: boolean): string[] {
  return isDirectory(path) ? filesOf(path, recursive) : [path];
}

function filesOf(directory: string, recursive: boolean): string[] {
  const names = attempt(directory, () => readdirSync(directory)).sort();
  return names.flatMap((name) => {
    const path = join(directory, name);
    if (isDirectory(path)) return recursive ? filesOf(path, true) : [];
    return /\.(ya?ml|json)$/i.test(name) ? [path] : [];
  });
}

const isDirectory = (path: string) => attempt(path, () => statSync(path)).isDirectory();
const read = (path: string) => attempt(path, () => readFileSync(path));

function attempt<T>(path: string, what: () => T): T {
  try {
    return what();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === "ENOENT" ? "no such file or directory" : code === "EACCES" ? "permission denied" : code;
    throw new Failure(`Failed to execute command: open ${path}: ${reason ?? String(error)}`, { cause: error });
  }
}

function decode(file: string, bytes: Uint8Array): string {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes); // drops a byte order mark
  } catch (error) {
    const offset = firstBadByte(bytes);
    const before = new TextDecoder().decode(bytes.subarray(0, offset));
    const place = { file, document: documentAt(before, before.length), line: lineAt(before, before.length) };
    throw new InputFault(place, `byte ${offset} is not valid UTF-8: the file is truncated or has another encoding`, {
      cause: error,
    });
  }
  if (bytes.length > MAX_DOCUMENT_BYTES) rejectLargeDocuments(file, text);
  // In concatenated files, each document may begin with a byte order mark.
  return text.replaceAll(/^(---[^\n]*\n)\uFEFF/gm, "$1");
}

function firstBadByte(bytes: Uint8Array): number {
  let [good, bad] = [0, bytes.length];
  // Finds the longest valid prefix. With `stream`, a prefix that ends inside a character is valid.
  while (good < bad) {
    const middle = (good + bad + 1) >> 1;
    if (decodes(bytes.subarray(0, middle))) good = middle;
    else bad = middle - 1;
  }
  return good;
}

function decodes(bytes: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return true;
  } catch {
    return false;
  }
}

function rejectLargeDocuments(file: string, text: string): void {
  let line = 1;
  let start = 0;
  let document = 1;
  for (const part of text.split(/^(?=---(?:\s|$))/m)) {
    const size = Buffer.byteLength(part);
    if (size > MAX_DOCUMENT_BYTES)
      throw new InputFault(
        { file, document, line },
        `the document has ${size} bytes, more than the limit of ${MAX_DOCUMENT_BYTES}; split it`,
      );
    start += part.length;
    line += part.split("\n").length - 1;
    if (start > 0) document++;
  }
}
