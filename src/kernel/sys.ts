// The one door to libc. Every call returns what the kernel returns: a result, or minus the errno.
//
// Rules that keep memory safe, each learnt from a crash:
//  - A pointer argument is declared "buffer" and given a view over an explicit ArrayBuffer, so the address is taken
//    by the call itself. A ptr() kept from a small typed array dangles once the JIT moves its bytes.
//  - Where a struct must hold an address (msghdr, ifreq), struct and target lie in memory we mapped ourselves, which
//    no collector moves.
//  - errno is per thread: each Worker loads its own copy of this module and with it its own location.
import { dlopen, type Pointer, read as readMemory, toArrayBuffer } from "bun:ffi";
import { EINTR } from "./errno.ts";

export type Bytes = Uint8Array<ArrayBuffer>;

export const AF_UNIX = 1;
export const AF_INET = 2;
export const AF_BRIDGE = 7;
export const AF_INET6 = 10;
export const AF_NETLINK = 16;
export const SOCK_STREAM = 1;
export const SOCK_DGRAM = 2;
export const SOCK_RAW = 3;
export const SOCK_CLOEXEC = 0o2000000;
export const SOL_SOCKET = 1;
export const MSG_TRUNC = 0x20;
export const MSG_DONTWAIT = 0x40;
export const MSG_NOSIGNAL = 0x4000;
export const MSG_CMSG_CLOEXEC = 0x40000000;
export const SOCK_NONBLOCK = 0o4000;
export const POLLIN = 1;
export const POLLOUT = 4;
export const CLONE_NEWNET = 0x40000000;
export const MS_BIND = 0x1000;
export const MS_REC = 0x4000;
export const MS_SHARED = 1 << 20;
export const MNT_DETACH = 2;

const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;

const SIGNATURES = {
  __errno_location: { args: [], returns: "ptr" },
  socket: { args: ["i32", "i32", "i32"], returns: "i32" },
  bind: { args: ["i32", "buffer", "u32"], returns: "i32" },
  connect: { args: ["i32", "buffer", "u32"], returns: "i32" },
  listen: { args: ["i32", "i32"], returns: "i32" },
  shutdown: { args: ["i32", "i32"], returns: "i32" },
  accept4: { args: ["i32", "usize", "usize", "i32"], returns: "i32" },
  sendto: { args: ["i32", "buffer", "usize", "i32", "buffer", "u32"], returns: "i32" },
  recvfrom: { args: ["i32", "buffer", "usize", "i32", "buffer", "buffer"], returns: "i32" },
  setsockopt: { args: ["i32", "i32", "i32", "buffer", "u32"], returns: "i32" },
  getsockopt: { args: ["i32", "i32", "i32", "buffer", "buffer"], returns: "i32" },
  // ssize_t, of which the low half is all: no datagram has 2 GB.
  send: { args: ["i32", "buffer", "usize", "i32"], returns: "i32" },
  recv: { args: ["i32", "buffer", "usize", "i32"], returns: "i32" },
  sendmsg: { args: ["i32", "usize", "i32"], returns: "i32" },
  recvmsg: { args: ["i32", "usize", "i32"], returns: "i32" },
  poll: { args: ["buffer", "u64", "i32"], returns: "i32" },
  open: { args: ["buffer", "i32"], returns: "i32" },
  read: { args: ["i32", "buffer", "usize"], returns: "i32" },
  write: { args: ["i32", "buffer", "usize"], returns: "i32" },
  close: { args: ["i32"], returns: "i32" },
  flock: { args: ["i32", "i32"], returns: "i32" },
  eventfd: { args: ["u32", "i32"], returns: "i32" },
  setns: { args: ["i32", "i32"], returns: "i32" },
  unshare: { args: ["i32"], returns: "i32" },
  mount: { args: ["buffer", "buffer", "buffer", "u64", "buffer"], returns: "i32" },
  umount2: { args: ["buffer", "i32"], returns: "i32" },
  mmap: { args: ["usize", "usize", "i32", "i32", "i32", "i64"], returns: "ptr" },
  _exit: { args: ["i32"], returns: "void" },
  setenv: { args: ["buffer", "buffer", "i32"], returns: "i32" },
  ioctl: { args: ["i32", "u64", "usize"], returns: "i32" },
} as const;

type Libc = ReturnType<typeof dlopen<typeof SIGNATURES>>["symbols"];

/** Calls bound so far. A program pays only for those it makes: binding one compiles a little machine code. */
const bound: Partial<Libc> = {};
let errnoAt: Pointer | undefined;

function libc<N extends keyof Libc>(name: N): Libc[N] {
  return bound[name] ?? bindCall(name);
}

function bindCall<N extends keyof Libc>(name: N): Libc[N] {
  // Known before any call can fail: finding it afterwards might change what stands there.
  if (errnoAt === undefined && name !== "__errno_location") errnoAt = errnoLocation();
  const { symbols } = dlopen("libc.so.6", { [name]: SIGNATURES[name] });
  const call = (symbols as unknown as Libc)[name];
  bound[name] = call;
  return call;
}

function errnoLocation(): Pointer {
  const location = libc("__errno_location")();
  if (typeof location !== "number") throw new Error("libc gives no errno location");
  return location;
}

/** The call's result, or minus the errno it left. Nothing may run between the call and this. */
const outcome = (result: number): number =>
  result < 0 && errnoAt !== undefined ? -readMemory.i32(errnoAt, 0) : result;

export const socket = (family: number, type: number, protocol: number): number =>
  outcome(libc("socket")(family, type | SOCK_CLOEXEC, protocol));
export const bind = (fd: number, address: Bytes): number => outcome(libc("bind")(fd, address, address.length));
export const connect = (fd: number, address: Bytes): number => outcome(libc("connect")(fd, address, address.length));
export const listen = (fd: number, backlog: number): number => outcome(libc("listen")(fd, backlog));
/** Ends the sending direction of a connection. */
export const shutdownWrite = (fd: number): number => outcome(libc("shutdown")(fd, 1)); // SHUT_WR
/** The next waiting connection, non-blocking; who it is from is not asked. */
export const accept = (fd: number): number => outcome(libc("accept4")(fd, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK));
/** Opens a file to read. For programs that load nothing else: `node:fs` takes over a millisecond to load. */
export const openReadOnly = (path: string): number => outcome(libc("open")(pathBytes(path), SOCK_CLOEXEC)); // O_CLOEXEC
export const openWriteOnly = (path: string): number => outcome(libc("open")(pathBytes(path), 1 | SOCK_CLOEXEC)); // O_WRONLY
export const read = (fd: number, bytes: Bytes): number => outcome(libc("read")(fd, bytes, bytes.length));
export const write = (fd: number, bytes: Bytes): number => outcome(libc("write")(fd, bytes, bytes.length));
/** Of what was opened here. Files of `node:fs` are closed by it. */
export const close = (fd: number): number => outcome(libc("close")(fd));
export const setns = (fd: number, kind: number): number => outcome(libc("setns")(fd, kind));

export type Opening =
  | { readonly kind: "socket"; readonly family: number; readonly type: number; readonly protocol: number }
  /** @param path NUL-terminated */
  | { readonly kind: "file"; readonly path: Bytes; readonly flags: number };

/**
 * Opens something in the network namespace `there`; `left` says how coming back went. Nothing is done in between but the
 * kernel's calls, bound and given their arguments before: a thread that is started by one that is away stays there for
 * good and keeps the namespace alive, and the runtime starts threads (its collector's, its compilers') when memory is
 * asked for.
 */
export function openAway(
  there: number,
  home: number,
  what: Opening,
): { readonly entered: number; readonly opened: number; readonly left: number } {
  const setns = libc("setns");
  const [socket, open] = [libc("socket"), libc("open")];
  const isFile = what.kind === "file";
  const path = isFile ? what.path : NO_BYTES;
  const first = isFile ? what.flags : what.family;
  const [type, protocol] = isFile ? [0, 0] : [what.type, what.protocol];
  const entered = outcome(setns(there, CLONE_NEWNET));
  if (entered < 0) return { entered, opened: entered, left: 0 };
  const opened = outcome(isFile ? open(path, first | SOCK_CLOEXEC) : socket(first, type | SOCK_CLOEXEC, protocol));
  const left = outcome(setns(home, CLONE_NEWNET));
  return { entered, opened, left };
}

/** The same where the thread is. */
export const openHere = (what: Opening): number =>
  what.kind === "file"
    ? outcome(libc("open")(what.path, what.flags | SOCK_CLOEXEC))
    : socket(what.family, what.type, what.protocol);

const NO_BYTES: Bytes = new Uint8Array(new ArrayBuffer(1));

export const unshare = (kinds: number): number => outcome(libc("unshare")(kinds));

export const setsockopt = (fd: number, level: number, name: number, value: Bytes): number =>
  outcome(libc("setsockopt")(fd, level, name, value, value.length));

export function setsockoptInt(fd: number, level: number, name: number, value: number): number {
  const bytes = allocate(4);
  new DataView(bytes.buffer).setInt32(0, value, true);
  return setsockopt(fd, level, name, bytes);
}

/** Fills `value`; the result is the length the kernel wrote. */
export function getsockopt(fd: number, level: number, name: number, value: Bytes): number {
  const length = allocate(4);
  const view = new DataView(length.buffer);
  view.setUint32(0, value.length, true);
  const result = outcome(libc("getsockopt")(fd, level, name, value, length));
  return result < 0 ? result : view.getUint32(0, true);
}

/** Sends the first `length` bytes. */
export const send = (fd: number, bytes: Bytes, length: number, flags: number): number =>
  outcome(libc("send")(fd, bytes, length, flags | MSG_NOSIGNAL));
/** Fills `bytes`; with MSG_TRUNC the result may exceed its length. */
export const recv = (fd: number, bytes: Bytes, flags: number): number =>
  outcome(libc("recv")(fd, bytes, bytes.length, flags));

export const sendTo = (fd: number, bytes: Bytes, address: Bytes): number =>
  outcome(libc("sendto")(fd, bytes, bytes.length, MSG_NOSIGNAL, address, address.length));

/** Fills `bytes` and `from`; both lengths come back, or minus the errno. */
export function receiveFrom(fd: number, bytes: Bytes, from: Bytes): { length: number; fromLength: number } | number {
  const fromLength = allocate(4);
  const view = new DataView(fromLength.buffer);
  view.setUint32(0, from.length, true);
  const length = outcome(libc("recvfrom")(fd, bytes, bytes.length, MSG_DONTWAIT, from, fromLength));
  return length < 0 ? length : { length, fromLength: view.getUint32(0, true) };
}

/** Waits for any of the events asked for; per descriptor the events that came, 0 for none. */
export function poll(
  wanted: readonly { readonly fd: number; readonly events: number }[],
  timeoutMs: number,
): number[] | number {
  const set = allocate(wanted.length * 8);
  const view = new DataView(set.buffer);
  for (const [i, { fd, events }] of wanted.entries()) {
    view.setInt32(i * 8, fd, true);
    view.setInt16(i * 8 + 4, events, true);
  }
  const result = outcome(libc("poll")(set, wanted.length, timeoutMs));
  return result < 0 ? result : wanted.map((_, i) => view.getInt16(i * 8 + 6, true));
}

/** Takes the file's lock if nobody has it; the lock goes with the descriptor, also when the process is killed. */
export const tryLock = (fd: number): number => outcome(libc("flock")(fd, 2 | 4)); // LOCK_EX | LOCK_NB

/** A descriptor that becomes readable once 8 bytes are written to it: how one thread wakes another from poll(). */
export const eventfd = (): number => outcome(libc("eventfd")(0, SOCK_CLOEXEC));

/** Waits until one of the descriptors is readable; the indexes of those that are (or have failed). */
export function pollReadable(fds: readonly number[], timeoutMs: number): number[] | number {
  const events = poll(
    fds.map((fd) => ({ fd, events: POLLIN })),
    timeoutMs,
  );
  return typeof events === "number" ? events : fds.map((_, i) => i).filter((i) => events[i] !== 0);
}

export const mount = (source: string, target: string, type: string, flags: number): number =>
  outcome(libc("mount")(cString(source), cString(target), cString(type), flags, cString("")));
export const umount = (target: string, flags: number): number => outcome(libc("umount2")(cString(target), flags));

/** Of this process as libc sees it, not of `process.env`; one that is there stays as it is. */
export const setEnvironment = (name: string, value: string): number =>
  outcome(libc("setenv")(cString(name), cString(value), 0));

/** Ends the process at once: no exit handlers, nothing of the runtime taken down in order. */
export function exitNow(code: number): never {
  libc("_exit")(code);
  throw new Error("still here after _exit");
}

/** Memory at an address of its own that nothing moves, for structs that hold addresses. */
export interface PinnedMemory {
  readonly address: number;
  readonly bytes: Bytes;
  readonly view: DataView<ArrayBuffer>;
}
const PINNED_SIZE = 65536;
let pinned: PinnedMemory | undefined;

/** The thread's one page of scratch memory: filled, used in one call and forgotten. */
export function pinnedMemory(): PinnedMemory {
  if (pinned !== undefined) return pinned;
  const address = libc("mmap")(0, PINNED_SIZE, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  if (typeof address !== "number" || address > Number.MAX_SAFE_INTEGER) throw new Error("no scratch memory from mmap");
  const buffer = toArrayBuffer(address, 0, PINNED_SIZE);
  const memory = { address, bytes: new Uint8Array(buffer), view: new DataView(buffer) };
  pinned = memory;
  return memory;
}

/** `argument` is an address inside pinned memory. */
export const ioctl = (fd: number, request: number, argument: number): number =>
  outcome(libc("ioctl")(fd, request, argument));
export const sendmsg = (fd: number, header: number, flags: number): number =>
  outcome(libc("sendmsg")(fd, header, flags | MSG_NOSIGNAL));
export const recvmsg = (fd: number, header: number, flags: number): number =>
  outcome(libc("recvmsg")(fd, header, flags));

/** Zeroed bytes with an ArrayBuffer of their own: what a pointer argument wants. */
export const allocate = (length: number): Bytes => new Uint8Array(new ArrayBuffer(length));

/**
 * Reads until the end.
 * @param fill reads some bytes into its argument and returns their number, 0 at the end, or minus the errno
 * @returns all bytes, or minus the errno
 */
export function readToEnd(fill: (piece: Bytes) => number): Bytes | number {
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

const encoder = new TextEncoder();
/** NUL-terminated UTF-8. Text with a NUL inside would be cut short by the kernel and is refused. */
export function cString(text: string): Bytes {
  if (text.includes("\0")) throw new RangeError(`${JSON.stringify(text)} holds a NUL`);
  const bytes = allocate(text.length * 3 + 1);
  encoder.encodeInto(text, bytes);
  return bytes;
}

const PATH_BYTES = 4096;
const pathBuffer = allocate(PATH_BYTES);
/** A path for the call it stands in: the next one is written over it. */
function pathBytes(path: string): Bytes {
  if (path.includes("\0")) throw new RangeError(`${JSON.stringify(path)} holds a NUL`);
  const { read: taken, written } = encoder.encodeInto(path, pathBuffer.subarray(0, PATH_BYTES - 1));
  if (taken < path.length) throw new RangeError(`a path of ${path.length} characters is too long`);
  pathBuffer[written] = 0;
  return pathBuffer;
}
