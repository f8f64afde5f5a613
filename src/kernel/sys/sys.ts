// Calls libc through FFI; nothing else in the tree does. Each call returns the result of the system call, or minus the errno.
//
// Rules for memory safety (each was found by a crash):
//  - A pointer argument is declared "buffer" and receives a view over an explicit ArrayBuffer, so that its address is taken
//    at the moment of the call. A stored ptr() of a small typed array dangles after the JIT has moved its bytes.
//  - A struct that contains an address (msghdr, ifreq), and the memory it points to, are in memory from mmap, which the
//    garbage collector does not move.
//  - errno is per thread: each Worker loads its own copy of this module, with its own errno location.
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
export const SO_RCVTIMEO = 20;
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
  // The result is an ssize_t; 32 bits suffice, because no message has 2 GB.
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

/** The functions bound so far. Binding one compiles some machine code, so only those that are called are bound. */
const bound: Partial<Libc> = {};
let errnoPointer: Pointer | undefined;

function libc<N extends keyof Libc>(name: N): Libc[N] {
  return bound[name] ?? bindCall(name);
}

function bindCall<N extends keyof Libc>(name: N): Libc[N] {
  // Determined before the first call: determining it after a failed call could overwrite the errno.
  if (errnoPointer === undefined && name !== "__errno_location") errnoPointer = errnoLocation();
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

/** Must be applied directly to the call's result: any code in between could overwrite the errno. */
const resultOrErrno = (result: number): number =>
  result < 0 && errnoPointer !== undefined ? -readMemory.i32(errnoPointer, 0) : result;

export const socket = (family: number, type: number, protocol: number): number =>
  resultOrErrno(libc("socket")(family, type | SOCK_CLOEXEC, protocol));
export const bind = (fd: number, address: Bytes): number => resultOrErrno(libc("bind")(fd, address, address.length));
export const connect = (fd: number, address: Bytes): number =>
  resultOrErrno(libc("connect")(fd, address, address.length));
export const listen = (fd: number, backlog: number): number => resultOrErrno(libc("listen")(fd, backlog));
export const shutdownWrite = (fd: number): number => resultOrErrno(libc("shutdown")(fd, 1)); // SHUT_WR
/** The accepted connection is non-blocking. */
export const accept = (fd: number): number => resultOrErrno(libc("accept4")(fd, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK));
/** For programs that do not load `node:fs`, which takes over a millisecond. */
export const openReadOnly = (path: string): number => resultOrErrno(libc("open")(pathBytes(path), SOCK_CLOEXEC)); // O_CLOEXEC
export const openWriteOnly = (path: string): number => resultOrErrno(libc("open")(pathBytes(path), 1 | SOCK_CLOEXEC)); // O_WRONLY
export const read = (fd: number, bytes: Bytes): number => resultOrErrno(libc("read")(fd, bytes, bytes.length));
export const write = (fd: number, bytes: Bytes): number => resultOrErrno(libc("write")(fd, bytes, bytes.length));
/** Only for descriptors that were opened here. Those of `node:fs` are closed with `closeSync`. */
export const close = (fd: number): number => resultOrErrno(libc("close")(fd));
export const setns = (fd: number, kind: number): number => resultOrErrno(libc("setns")(fd, kind));

export type SocketOrFile =
  | { readonly kind: "socket"; readonly family: number; readonly type: number; readonly protocol: number }
  /** @param path NUL-terminated */
  | { readonly kind: "file"; readonly path: Bytes; readonly flags: number };

/**
 * Enters the network namespace `target`, opens a socket or file, and returns to `previous`. Each result is that of one step.
 *
 * Inside the namespace only system calls are made, whose functions and arguments were prepared before. The runtime may start
 * threads (garbage collector, JIT compiler) whenever memory is allocated; a thread that is started inside the namespace
 * stays there and keeps it alive.
 */
export function openInOtherNamespace(
  target: number,
  previous: number,
  request: SocketOrFile,
): { readonly entered: number; readonly opened: number; readonly returned: number } {
  const setns = libc("setns");
  const [socket, open] = [libc("socket"), libc("open")];
  const isFile = request.kind === "file";
  const path = isFile ? request.path : NO_BYTES;
  const first = isFile ? request.flags : request.family;
  const [type, protocol] = isFile ? [0, 0] : [request.type, request.protocol];
  const entered = resultOrErrno(setns(target, CLONE_NEWNET));
  if (entered < 0) return { entered, opened: entered, returned: 0 };
  const opened = resultOrErrno(
    isFile ? open(path, first | SOCK_CLOEXEC) : socket(first, type | SOCK_CLOEXEC, protocol),
  );
  const returned = resultOrErrno(setns(previous, CLONE_NEWNET));
  return { entered, opened, returned };
}

export const openInCurrentNamespace = (request: SocketOrFile): number =>
  request.kind === "file"
    ? resultOrErrno(libc("open")(request.path, request.flags | SOCK_CLOEXEC))
    : socket(request.family, request.type, request.protocol);

const NO_BYTES: Bytes = new Uint8Array(new ArrayBuffer(1));

export const unshare = (kinds: number): number => resultOrErrno(libc("unshare")(kinds));

export const setsockopt = (fd: number, level: number, name: number, value: Bytes): number =>
  resultOrErrno(libc("setsockopt")(fd, level, name, value, value.length));

export function setsockoptInt(fd: number, level: number, name: number, value: number): number {
  const bytes = allocate(4);
  new DataView(bytes.buffer).setInt32(0, value, true);
  return setsockopt(fd, level, name, bytes);
}

/** The value of SO_RCVTIMEO and SO_SNDTIMEO. */
export function timeval(ms: number): Bytes {
  const bytes = allocate(16);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, Math.floor(ms / 1000), true);
  view.setUint32(8, (ms % 1000) * 1000, true);
  return bytes;
}

/** Fills `value` and returns the number of bytes that the kernel wrote. */
export function getsockopt(fd: number, level: number, name: number, value: Bytes): number {
  const length = allocate(4);
  const view = new DataView(length.buffer);
  view.setUint32(0, value.length, true);
  const result = resultOrErrno(libc("getsockopt")(fd, level, name, value, length));
  return result < 0 ? result : view.getUint32(0, true);
}

/** Sends the first `length` bytes. */
export const send = (fd: number, bytes: Bytes, length: number, flags: number): number =>
  resultOrErrno(libc("send")(fd, bytes, length, flags | MSG_NOSIGNAL));
/** Fills `bytes`. With MSG_TRUNC, the result is the length of the whole datagram, which may exceed that of `bytes`. */
export const recv = (fd: number, bytes: Bytes, flags: number): number =>
  resultOrErrno(libc("recv")(fd, bytes, bytes.length, flags));

export const sendTo = (fd: number, bytes: Bytes, address: Bytes): number =>
  resultOrErrno(libc("sendto")(fd, bytes, bytes.length, MSG_NOSIGNAL, address, address.length));

/** Fills `bytes` and `from`, and returns both lengths. */
export function receiveFrom(fd: number, bytes: Bytes, from: Bytes): { length: number; fromLength: number } | number {
  const fromLength = allocate(4);
  const view = new DataView(fromLength.buffer);
  view.setUint32(0, from.length, true);
  const length = resultOrErrno(libc("recvfrom")(fd, bytes, bytes.length, MSG_DONTWAIT, from, fromLength));
  return length < 0 ? length : { length, fromLength: view.getUint32(0, true) };
}

/**
 * Waits for events on any of the descriptors (poll(2)).
 * @returns `revents` of each descriptor, 0 if nothing happened; or minus the errno
 */
export function poll(
  watched: readonly { readonly fd: number; readonly events: number }[],
  timeoutMs: number,
): number[] | number {
  const set = allocate(watched.length * 8); // struct pollfd
  const view = new DataView(set.buffer);
  for (const [i, { fd, events }] of watched.entries()) {
    view.setInt32(i * 8, fd, true);
    view.setInt16(i * 8 + 4, events, true);
  }
  const result = resultOrErrno(libc("poll")(set, watched.length, timeoutMs));
  return result < 0 ? result : watched.map((_, i) => view.getInt16(i * 8 + 6, true));
}

/** Locks a file without waiting (flock(2)). The kernel releases the lock when the descriptor is closed. */
export const tryLock = (fd: number): number => resultOrErrno(libc("flock")(fd, 2 | 4)); // LOCK_EX | LOCK_NB

/** Creates a descriptor that becomes readable when 8 bytes are written to it. One thread wakes another from poll() with it. */
export const eventfd = (): number => resultOrErrno(libc("eventfd")(0, SOCK_CLOEXEC));

/** Waits until a descriptor is readable. Returns the readable or failed descriptors, or minus the errno. */
export function pollReadable(fds: readonly number[], timeoutMs: number): number[] | number {
  const events = poll(
    fds.map((fd) => ({ fd, events: POLLIN })),
    timeoutMs,
  );
  return typeof events === "number" ? events : fds.filter((_, i) => events[i] !== 0);
}

export const mount = (source: string, target: string, type: string, flags: number): number =>
  resultOrErrno(libc("mount")(cString(source), cString(target), cString(type), flags, cString("")));
export const umount = (target: string, flags: number): number => resultOrErrno(libc("umount2")(cString(target), flags));

/** Sets a variable for libc and native code; `process.env` does not change. */
export const setenvIfUnset = (name: string, value: string): number =>
  resultOrErrno(libc("setenv")(cString(name), cString(value), 0));

/** Exits without exit handlers and without shutting down the runtime, which takes milliseconds. */
export function exitNow(code: number): never {
  libc("_exit")(code);
  throw new Error("still here after _exit");
}

/** Memory that never moves, for structs that contain addresses. */
export interface PinnedMemory {
  readonly address: number;
  readonly bytes: Bytes;
  readonly view: DataView<ArrayBuffer>;
}
const PINNED_SIZE = 65536;
let pinned: PinnedMemory | undefined;

/** Returns this thread's scratch memory. Its content is valid only until the next system call that uses it. */
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
  resultOrErrno(libc("ioctl")(fd, request, argument));
export const sendmsg = (fd: number, header: number, flags: number): number =>
  resultOrErrno(libc("sendmsg")(fd, header, flags | MSG_NOSIGNAL));
export const recvmsg = (fd: number, header: number, flags: number): number =>
  resultOrErrno(libc("recvmsg")(fd, header, flags));

/** Returns zeroed bytes with an explicit ArrayBuffer, as pointer arguments need them. */
export const allocate = (length: number): Bytes => new Uint8Array(new ArrayBuffer(length));

/**
 * Reads until the end.
 * @param fill reads some bytes into its argument and returns their number, 0 at the end of the input, or minus the errno
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
/** NUL-terminated UTF-8. Text that contains a NUL is rejected, because the kernel would read only the part before it. */
export function cString(text: string): Bytes {
  if (text.includes("\0")) throw new RangeError(`${JSON.stringify(text)} contains a NUL`);
  const bytes = allocate(text.length * 3 + 1);
  encoder.encodeInto(text, bytes);
  return bytes;
}

const PATH_BYTES = 4096;
const pathBuffer = allocate(PATH_BYTES);
/** Like cString, but without an allocation: valid until the next call. */
function pathBytes(path: string): Bytes {
  if (path.includes("\0")) throw new RangeError(`${JSON.stringify(path)} contains a NUL`);
  const { read: encoded, written } = encoder.encodeInto(path, pathBuffer.subarray(0, PATH_BYTES - 1));
  if (encoded < path.length) throw new RangeError(`path of ${path.length} characters is too long`);
  pathBuffer[written] = 0;
  return pathBuffer;
}
