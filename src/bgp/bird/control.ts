// Sends commands to BIRD's control socket, one at a time. Reply lines start with a four-digit code: a space after the code
// marks the last line, a dash means that more lines follow, and a line that starts with a space has the code of the line
// before it.
// https://bird.network.cz/?get_doc&v=20&f=prog-2.html#ss2.9
import { connect, type Socket } from "node:net";
import type { IpVersion } from "../../lib/ip/ip.ts";

export interface ReplyLine {
  readonly code: number;
  readonly text: string;
}

export class BirdUnreachable extends Error {
  override readonly name = "BirdUnreachable";
  constructor(
    readonly socket: string,
    reason: string,
    options?: ErrorOptions,
  ) {
    super(`BIRD does not respond on ${socket}: ${reason}`, options);
  }

  /** True if nothing listens on the socket: BIRD does not run. Otherwise it may be busy. */
  get isAbsent(): boolean {
    const code = (this.cause as { readonly code?: string } | undefined)?.code;
    return code === "ENOENT" || code === "ECONNREFUSED";
  }
}

/** BIRD rejected a command: it is unknown, or the configuration is invalid. */
export class BirdRejected extends Error {
  override readonly name = "BirdRejected";
  constructor(
    readonly command: string,
    readonly code: number,
    readonly reason: string,
  ) {
    super(`BIRD rejected ${JSON.stringify(command)}: ${reason}`);
  }
}

/** Control sockets by family: that of calico-node first, then that of the distribution. */
export const BIRD_SOCKETS: Readonly<Record<IpVersion, readonly string[]>> = {
  4: ["/var/run/calico/bird.ctl", "/var/run/bird/bird.ctl"],
  6: ["/var/run/calico/bird6.ctl", "/var/run/bird/bird6.ctl"],
};

const TIMEOUT_MS = 2000;
const GREETING = 1;
const FIRST_ERROR = 8000;

/** Connects to the first socket on which BIRD responds. */
export async function connectBird(paths: readonly string[], timeoutMs = TIMEOUT_MS): Promise<BirdControl> {
  let failure: unknown;
  for (const path of paths) {
    try {
      return await BirdControl.connect(path, timeoutMs);
    } catch (error) {
      failure ??= error;
    }
  }
  throw failure ?? new BirdUnreachable(paths.join(", "), "no socket configured");
}

/**
 * @param lastCode the code of the line before
 * @returns undefined if the line is not in BIRD's format
 */
export function parseReplyLine(line: string, lastCode: number): (ReplyLine & { readonly isLast: boolean }) | undefined {
  const [, code, more, text] = /^(\d{4})([ -])(.*)$/.exec(line) ?? [];
  if (code !== undefined) return { code: Number(code), text: text ?? "", isLast: more !== "-" };
  if (!line.startsWith(" ") && line !== "") return undefined;
  return { code: lastCode, text: line.slice(1), isLast: false };
}

interface PendingRequest {
  readonly command: string;
  readonly lines: ReplyLine[];
  readonly resolve: (lines: readonly ReplyLine[]) => void;
  readonly reject: (error: Error) => void;
}

export class BirdControl implements Disposable {
  readonly #path: string;
  readonly #socket: Socket;
  readonly #timeoutMs: number;
  readonly #pending: PendingRequest[] = [];
  #rest = "";
  #code = 0;
  #timer: Timer | undefined;
  #failure: BirdUnreachable | undefined;

  static async connect(path: string, timeoutMs = TIMEOUT_MS): Promise<BirdControl> {
    const control = new BirdControl(path, connect(path), timeoutMs);
    const [greeting] = await control.#expect("");
    if (greeting?.code !== GREETING) throw control.#fail(new BirdUnreachable(path, "the server is not BIRD"));
    return control;
  }

  private constructor(path: string, socket: Socket, timeoutMs: number) {
    this.#path = path;
    this.#socket = socket;
    this.#timeoutMs = timeoutMs;
    socket.setEncoding("utf8");
    socket.on("data", (chunk: string) => this.#read(chunk));
    socket.on("error", (error) => this.#fail(new BirdUnreachable(path, error.message, { cause: error })));
    socket.on("close", () => this.#fail(new BirdUnreachable(path, "the connection was closed")));
  }

  /** @throws BirdRejected, BirdUnreachable */
  async request(command: string): Promise<readonly ReplyLine[]> {
    if (/[\n\r\0]/.test(command)) throw new TypeError("a command must be one line");
    if (this.#failure !== undefined) throw this.#failure;
    const lines = await this.#expect(command);
    const last = lines.at(-1);
    if (last !== undefined && last.code >= FIRST_ERROR) throw new BirdRejected(command, last.code, last.text);
    return lines;
  }

  [Symbol.dispose](): void {
    this.#fail(new BirdUnreachable(this.#path, "the client closed the connection"));
  }

  #expect(command: string): Promise<readonly ReplyLine[]> {
    return new Promise((resolve, reject) => {
      this.#pending.push({ command, lines: [], resolve, reject });
      if (this.#pending.length === 1) this.#send();
      this.#restartTimeout();
    });
  }

  #read(chunk: string): void {
    const lines = (this.#rest + chunk).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#readLine(line);
    this.#restartTimeout();
  }

  #readLine(line: string): void {
    const request = this.#pending[0];
    if (request === undefined) return;
    const parsed = parseReplyLine(line, this.#code);
    if (parsed === undefined) {
      this.#fail(new BirdUnreachable(this.#path, `invalid reply ${JSON.stringify(line.slice(0, 80))}`));
      return;
    }
    this.#code = parsed.code;
    request.lines.push({ code: parsed.code, text: parsed.text });
    if (!parsed.isLast) return;
    this.#pending.shift();
    request.resolve(request.lines);
    this.#send();
  }

  /** Sends the next command. BIRD sends its greeting without one. */
  #send(): void {
    const request = this.#pending[0];
    if (request !== undefined && request.command !== "") this.#socket.write(`${request.command}\n`);
  }

  /** Restarts the timeout, which applies to each chunk of a reply. */
  #restartTimeout(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending.length === 0 || this.#failure !== undefined) return;
    const reason = `no reply within ${this.#timeoutMs} ms`;
    this.#timer = setTimeout(() => this.#fail(new BirdUnreachable(this.#path, reason)), this.#timeoutMs);
  }

  #fail(error: BirdUnreachable): BirdUnreachable {
    if (this.#failure !== undefined) return this.#failure;
    this.#failure = error;
    clearTimeout(this.#timer);
    this.#socket.destroy();
    for (const request of this.#pending.splice(0)) request.reject(error);
    return error;
  }
}
