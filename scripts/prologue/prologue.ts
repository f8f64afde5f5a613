// The prologue of the executable: its assembly text, assembled for the place it gets and written there.
import { closeSync, fstatSync, openSync, readFileSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { assemble, type Program } from "./assemble.ts";
import { findPlace, HEADER_LENGTH, NoPlace, putSegment } from "./elf.ts";

const PARTS = ["constants", "entry", "request", "destination", "exchange", "decline", "routines"];
export const PROLOGUE = PARTS.map((part) => readFileSync(join(import.meta.dir, `${part}.s`), "utf8")).join("\n");

/** @param originalEntry where to go on when the call is not for us */
export const assemblePrologue = (address: number, originalEntry: number, source = PROLOGUE): Program =>
  assemble(source, address, new Map([["original_entry", originalEntry]]));

/** Whether the executable has this prologue. */
export function hasPrologue(path: string): boolean {
  const { code } = assemblePrologue(0, 0);
  const file = readFileSync(path);
  // It is the end of the file; its own end, the way to the rest of the executable, depends on the place.
  return file.subarray(-code.length).subarray(0, 512).equals(code.subarray(0, 512));
}

/** To an executable that nobody runs yet. Why it was left as it is, if it was. */
export function addPrologue(path: string, source = PROLOGUE): string | undefined {
  const fd = openSync(path, "r+");
  try {
    const headers = new Uint8Array(HEADER_LENGTH);
    const read = headers.subarray(0, readSync(fd, headers, 0, HEADER_LENGTH, 0));
    const place = findPlace(read, fstatSync(fd).size);
    const { code } = assemblePrologue(place.address, place.entry, source);
    putSegment(read, place, code.length);
    writeSync(fd, code, 0, code.length, place.offset);
    writeSync(fd, read, 0, read.length, 0);
    return undefined;
  } catch (error) {
    if (error instanceof NoPlace) return error.message;
    throw error;
  } finally {
    closeSync(fd);
  }
}
