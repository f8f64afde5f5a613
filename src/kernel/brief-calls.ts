// The kernel's calls for a program that lives for milliseconds and blocks in all it does. One function of libc is bound
// instead of one for each call, and everything that is read or sent lies in one mapped piece of memory: what a program
// does not set up it does not pay for. https://man7.org/linux/man-pages/man2/syscall.2.html
import { EAGAIN, EINTR } from "./errno.ts";
import { type BriefLibc, bindSyscall, MSG_NOSIGNAL, POLLIN, POLLOUT, SOCK_CLOEXEC } from "./sys.ts";

interface Numbers {
  readonly read: number;
  readonly write: number;
  readonly openat: number;
  readonly socket: number;
  readonly connect: number;
  readonly setsockopt: number;
  readonly getsockopt: number;
  readonly geteuid: number;
  readonly fcntl: number;
  readonly sendmsg: number;
  readonly shutdown: number;
  readonly ppoll: number;
  readonly exitGroup: number;
  readonly mmap: number;
}
const X64: Numbers = {
  read: 0,
  write: 1,
  openat: 257,
  socket: 41,
  connect: 42,
  setsockopt: 54,
  getsockopt: 55,
  geteuid: 107,
  fcntl: 72,
  sendmsg: 46,
  shutdown: 48,
  ppoll: 271,
  exitGroup: 231,
  mmap: 9,
};
const ARM64: Numbers = {
  read: 63,
  write: 64,
  openat: 56,
  socket: 198,
  connect: 203,
  setsockopt: 208,
  getsockopt: 209,
  geteuid: 175,
  fcntl: 25,
  sendmsg: 211,
  shutdown: 210,
  ppoll: 73,
  exitGroup: 94,
  mmap: 222,
};

// What lies where in the memory: small structures, a path, then text from here on (input and, after it, the reply).
const MSGHDR = 0;
const IOVEC = 64;
const CONTROL = 96;
const TIMEVAL = 128;
const POLLFD = 144;
const CREDENTIALS = 152; // struct ucred and, behind it, its length
const PATH = 256;
/** What is sent before the input ends where the input begins. */
const INPUT = 64 * 1024;
const SIZE = 64 << 20; // of addresses; pages come when they are written to
/** What of it we look at; more when there is more. A view of all would have the collector run, for milliseconds. */
const FIRST_VIEW = 256 * 1024;
const MAX_PATH = 4096;
const AT_FDCWD = -100;
const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
const SO_RCVTIMEO = 20;
const SO_SNDTIMEO = 21;
const F_GETFD = 1;
const FD_CLOEXEC = 1;

export class BriefCalls {
  readonly #libc: BriefLibc;
  readonly #numbers: Numbers;
  #bytes: Uint8Array;
  #words: Uint32Array;
  #inputLength = 0;
  #replyLength = 0;
  #wasSilent = false;

  private constructor(libc: BriefLibc, numbers: Numbers) {
    this.#libc = libc;
    this.#numbers = numbers;
    const memory = libc.view(FIRST_VIEW);
    this.#bytes = new Uint8Array(memory);
    this.#words = new Uint32Array(memory);
  }

  #lookAt(length: number): void {
    if (length <= this.#bytes.length) return;
    const memory = this.#libc.view((length + 7) & ~7);
    this.#bytes = new Uint8Array(memory);
    this.#words = new Uint32Array(memory);
  }

  /** Nothing on a processor whose numbers we do not have. */
  static open(): BriefCalls | undefined {
    const numbers = process.arch === "x64" ? X64 : process.arch === "arm64" ? ARM64 : undefined;
    return numbers && new BriefCalls(bindSyscall(numbers.mmap, SIZE), numbers);
  }

  /**
   * Whether who ran before us in this process left standard input close-on-exec, as no program's is when it starts. The
   * executable's prologue does so if it has sent the request to the service and received no complete reply.
   */
  isInputMarked(): boolean {
    const flags = this.#call(this.#numbers.fcntl, 0, F_GETFD);
    return flags > 0 && (flags & FD_CLOEXEC) !== 0;
  }

  /** Keeps all of standard input; false when it cannot be read. */
  readInput(): boolean {
    this.#inputLength = this.#readToEnd(0, INPUT);
    return this.#inputLength >= 0;
  }
  get input(): string {
    return new TextDecoder().decode(this.#bytes.subarray(INPUT, INPUT + this.#inputLength));
  }
  /** Whether these bytes stand somewhere in the input; the text is ASCII. */
  inputHas(text: string): boolean {
    const first = text.charCodeAt(0);
    const end = INPUT + this.#inputLength - text.length;
    for (let at = this.#bytes.indexOf(first, INPUT); at >= 0 && at <= end; at = this.#bytes.indexOf(first, at + 1)) {
      let i = 1;
      while (i < text.length && this.#bytes[at + i] === text.charCodeAt(i)) i++;
      if (i === text.length) return true;
    }
    return false;
  }

  /** Whether somebody listened who then neither took nor gave a byte for the time a connection waits. */
  get wasSilent(): boolean {
    return this.#wasSilent;
  }

  /**
   * A connection to a Unix socket, or nothing when nobody listens there, or somebody of another user.
   * @param silenceSeconds how long to wait until the other side accepts the connection, and for every piece that is sent
   * @param limitsReply whether the same limit applies to every piece of the reply
   */
  connect(path: string, silenceSeconds: number, limitsReply: boolean): number | undefined {
    const length = this.#putPath(path, PATH + 2);
    if (length === undefined || length > 107) return undefined;
    this.#bytes[PATH] = 1; // AF_UNIX
    this.#bytes[PATH + 1] = 0;
    const fd = this.#call(this.#numbers.socket, 1, 1 | SOCK_CLOEXEC, 0); // SOCK_STREAM
    if (fd < 0) return undefined;
    this.#putLong(TIMEVAL, silenceSeconds);
    this.#putLong(TIMEVAL + 8, 0);
    for (let option = limitsReply ? SO_RCVTIMEO : SO_SNDTIMEO; option <= SO_SNDTIMEO; option++)
      this.#call(this.#numbers.setsockopt, fd, SOL_SOCKET, option, this.#at(TIMEVAL), 16);
    if (this.#onConnection(this.#call(this.#numbers.connect, fd, this.#at(PATH), length + 3)) < 0) return undefined;
    return this.#peerIsOurs(fd) ? fd : undefined;
  }

  /** EAGAIN says that the other side's time is over. */
  #onConnection(result: number): number {
    if (result === -EAGAIN) this.#wasSilent = true;
    return result;
  }

  #peerIsOurs(fd: number): boolean {
    this.#words[(CREDENTIALS >> 2) + 3] = 12;
    const [at, length] = [this.#at(CREDENTIALS), this.#at(CREDENTIALS + 12)];
    if (this.#call(this.#numbers.getsockopt, fd, SOL_SOCKET, SO_PEERCRED, at, length) < 0) return false;
    return this.#words[(CREDENTIALS >> 2) + 1] === this.#call(this.#numbers.geteuid);
  }

  /** A descriptor, or minus the errno; nothing when it is no path at all. */
  openReadOnly(path: string): number | undefined {
    if (this.#putPath(path, PATH) === undefined) return undefined;
    return this.#call(this.#numbers.openat, AT_FDCWD, this.#at(PATH), SOCK_CLOEXEC); // O_CLOEXEC is the same bit
  }

  /** Sends the head (ASCII), then the input, and a descriptor along; then the end. False when not all of it was sent. */
  send(fd: number, head: string, descriptor: number | undefined): boolean {
    const from = INPUT - head.length;
    if (from < PATH + MAX_PATH) return false;
    for (let i = 0; i < head.length; i++) this.#bytes[from + i] = head.charCodeAt(i);
    const end = INPUT + this.#inputLength;
    for (let at = from, isFirst = true; at < end; isFirst = false) {
      const sent = this.#onConnection(this.#sendPart(fd, at, end - at, isFirst ? descriptor : undefined));
      if (sent === -EINTR) continue;
      if (sent < 0) return false;
      at += sent;
    }
    this.#call(this.#numbers.shutdown, fd, 1); // SHUT_WR; it fails if the other side is gone, and so will the reply
    return true;
  }

  #sendPart(fd: number, at: number, length: number, descriptor: number | undefined): number {
    this.#bytes.fill(0, MSGHDR, TIMEVAL);
    this.#putLong(MSGHDR + 16, this.#at(IOVEC));
    this.#putLong(MSGHDR + 24, 1);
    this.#putLong(IOVEC, this.#at(at));
    this.#putLong(IOVEC + 8, length);
    if (descriptor !== undefined) {
      this.#putLong(MSGHDR + 32, this.#at(CONTROL));
      this.#putLong(MSGHDR + 40, 24);
      this.#putLong(CONTROL, 20); // cmsghdr: 16 bytes and one int
      this.#words[(CONTROL + 8) >> 2] = 1; // SOL_SOCKET
      this.#words[(CONTROL + 12) >> 2] = 1; // SCM_RIGHTS
      this.#words[(CONTROL + 16) >> 2] = descriptor;
    }
    return this.#call(this.#numbers.sendmsg, fd, this.#at(MSGHDR), MSG_NOSIGNAL);
  }

  /** Keeps all the other side sends until it closes: how many bytes, or nothing when it fails or falls silent. */
  readReply(fd: number): number | undefined {
    this.#replyLength = this.#onConnection(this.#readToEnd(fd, INPUT + this.#inputLength));
    return this.#replyLength < 0 ? undefined : this.#replyLength;
  }
  replyByte(index: number): number | undefined {
    return index < this.#replyLength ? this.#bytes[INPUT + this.#inputLength + index] : undefined;
  }
  /** The reply between these bytes goes to standard output, however slowly it is taken. */
  printReply(from: number, to: number): void {
    const start = INPUT + this.#inputLength;
    for (let at = start + from; at < start + to; ) {
      const written = this.#call(this.#numbers.write, 1, this.#at(at), start + to - at);
      if (written === -EAGAIN) this.#waitFor(1, POLLOUT);
      else if (written >= 0) at += written;
      else if (written !== -EINTR) return; // nobody reads any more
    }
  }

  #waitFor(fd: number, events: number): void {
    this.#words[POLLFD >> 2] = fd;
    this.#words[(POLLFD >> 2) + 1] = events;
    this.#call(this.#numbers.ppoll, this.#at(POLLFD), 1, 0, 0, 0);
  }

  /** Ends the process at once. */
  exit(code: number): never {
    this.#call(this.#numbers.exitGroup, code);
    throw new Error("still here after exit_group");
  }

  #readToEnd(fd: number, at: number): number {
    for (let total = 0; at + total < SIZE; ) {
      const length = this.#call(this.#numbers.read, fd, this.#at(at + total), SIZE - at - total);
      if (length === 0) {
        this.#lookAt(at + total);
        return total;
      }
      if (length > 0) total += length;
      else if (length === -EAGAIN && fd === 0) this.#waitFor(fd, POLLIN);
      else if (length !== -EINTR) return length;
    }
    return -1;
  }

  /** How long it is; nothing when it is too long, or no text of which the kernel could make a path. */
  #putPath(path: string, at: number): number | undefined {
    if (path === "" || path.length * 3 >= MAX_PATH || path.includes("\0")) return undefined;
    let length = 0;
    for (; length < path.length; length++) {
      const code = path.charCodeAt(length);
      if (code > 127) {
        length = new TextEncoder().encodeInto(path, this.#bytes.subarray(at, at + MAX_PATH)).written;
        break;
      }
      this.#bytes[at + length] = code;
    }
    this.#bytes[at + length] = 0;
    return length;
  }

  #at(offset: number): number {
    return this.#libc.address + offset;
  }
  /** 64 bits without a BigInt: addresses of a process have 47. */
  #putLong(at: number, value: number): void {
    this.#words[at >> 2] = value >>> 0;
    this.#words[(at >> 2) + 1] = value / 4294967296;
  }
  #call(number: number, a = 0, b = 0, c = 0, d = 0, e = 0): number {
    return this.#libc.call(number, a, b, c, d, e);
  }
}
