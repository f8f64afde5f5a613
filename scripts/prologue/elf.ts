// Gives an executable one more segment, whose code runs before all else of it. Nothing of the executable moves: the code
// goes to the end of the file and behind everything in memory, and the program header that says so takes the place of
// the one for notes (build ID and the like, which tools find by the section headers). Of the rest only the entry point
// changes. https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html

/** As much of a file's beginning as must be read: the headers we change are in it. */
export const HEADER_LENGTH = 4096;

const PAGE = 4096;
const EM_X86_64 = 62;
const PT_LOAD = 1;
const PT_NOTE = 4;
const READ_AND_EXECUTE = 5;
const PROGRAM_HEADER = 56;

/** Why an executable gets no code of ours; it is left as it is. */
export class NoPlace extends Error {
  override readonly name = "NoPlace";
}

/** Where the code goes. */
export interface Place {
  readonly offset: number;
  readonly address: number;
  /** Where the executable begins without us. */
  readonly entry: number;
  /** Where in the file the program header is that will be ours. */
  readonly header: number;
}

/** @throws NoPlace */
export function findPlace(headers: Uint8Array, fileLength: number): Place {
  const view = new DataView(headers.buffer, headers.byteOffset, headers.byteLength);
  const isElf = headers.length >= 64 && view.getUint32(0) === 0x7f454c46 && headers[4] === 2 && headers[5] === 1;
  if (!isElf || view.getUint16(18, true) !== EM_X86_64) throw new NoPlace("it is no executable for x86-64");
  const all = programHeaders(view);
  const loads = all.filter((at) => view.getUint32(at, true) === PT_LOAD);
  const header = all.findLast((at) => view.getUint32(at, true) === PT_NOTE);
  const end = Math.max(0, ...loads.map((at) => long(view, at + 16) + long(view, at + 40)));
  if (end === 0) throw new NoPlace("nothing of it is loaded");
  // Segments stand in the order of their addresses, and ours has the highest.
  if (header === undefined || loads.some((at) => at > header))
    throw new NoPlace("it has no note whose program header could be ours");
  return { offset: pageUp(fileLength), address: pageUp(end), entry: long(view, 24), header };
}

/** Writes into the headers that so many bytes of code are there now, the entry point first of all. */
export function putSegment(headers: Uint8Array, place: Place, length: number): void {
  const view = new DataView(headers.buffer, headers.byteOffset, headers.byteLength);
  putLong(view, 24, place.address);
  view.setUint32(place.header, PT_LOAD, true);
  view.setUint32(place.header + 4, READ_AND_EXECUTE, true);
  const fields = [place.offset, place.address, place.address, length, length, PAGE]; // its address twice: physical too
  for (const [i, value] of fields.entries()) putLong(view, place.header + 8 + 8 * i, value);
}

function programHeaders(view: DataView): number[] {
  const [start, size, count] = [long(view, 32), view.getUint16(54, true), view.getUint16(56, true)];
  if (size !== PROGRAM_HEADER || start + size * count > view.byteLength)
    throw new NoPlace("its program headers are not at its beginning");
  return Array.from({ length: count }, (_, i) => start + i * size);
}

/** Offsets and addresses are far below 2^53; what is not is no executable. */
function long(view: DataView, at: number): number {
  const value = Number(view.getBigUint64(at, true));
  if (!Number.isSafeInteger(value)) throw new NoPlace("one of its headers holds an impossible number");
  return value;
}

const putLong = (view: DataView, at: number, value: number): void => view.setBigUint64(at, BigInt(value), true);

const pageUp = (value: number): number => Math.ceil(value / PAGE) * PAGE;
