// BIRD's control socket: one question at a time, answered in lines that begin with a code of four digits. A blank after
// the code ends the answer, a dash says that more follows, a line that begins with a blank has the code before it.
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
    super(`BIRD does not answer on ${socket}: ${reason}`, options);
  }

  /** Nobody listens there: BIRD does not run, rather than being busy. */
  get isAbsent(): boolean {
    const code = (this.cause as { readonly code?: string } | undefined)?.code;
    return code === "ENOENT" || code === "ECONNREFUSED";
  }
}

/** BIRD understood and said no: a command it does not know, a configuration it does not take. */
export class BirdRefused extends Error {
  override readonly name = "BirdRefused";
  constructor(
    readonly command: string,
    readonly code: number,
    readonly reason: string,
  ) {
    super(`BIRD refused ${JSON.stringify(command)}: ${reason}`);
  }
}

/** Where BIRD listens, by family: our place first, then that of the distribution. */
export const BIRD_SOCKETS: Readonly<Record<IpVersion, readonly string[]>> = {
  4: ["/var/run/calico/bird.ctl", "/var/run/bird/bird.ctl"],
  6: ["/var/run/calico/bird6.ctl", "/var/run/bird/bird6.ctl"],
};

const TIMEOUT_MS = 2000;
const HELLO = 1;
const FIRST_ERROR = 8000;

/** The first socket that answers. */
export async function connectBird(paths: readonly string[], timeoutMs = TIMEOUT_MS): Promise<BirdControl> {
  let failure: unknown;
  for (const path of paths) {
    try {
      return await BirdControl.connect(path, timeoutMs);
    } catch (error) {
      failure ??= error;
    }
  }
  throw failure ?? new BirdUnreachable(paths.join(", "), "no socket to try");
}

/**
 * @param lastCode the code of the line before
 * @returns undefined if BIRD sends no such line
 */
export function parseReplyLine(line: string, lastCode: number): (ReplyLine & { readonly isLast: boolean }) | undefined {
  const [, code, more, text] = /^(\d{4})([ -])(.*)$/.exec(line) ?? [];
  if (code !== undefined) return { code: Number(code), text: text ?? "", isLast: more !== "-" };
  if (!line.startsWith(" ") && line !== "") return undefined;
  return { code: lastCode, text: line.slice(1), isLast: false };
}

interface Question {
  readonly command: string;
  readonly lines: ReplyLine[];
  readonly resolve: (lines: readonly ReplyLine[]) => void;
  readonly reject: (error: Error) => void;
}

export class BirdControl implements Disposable {
  readonly #path: string;
  readonly #socket: Socket;
  readonly #timeoutMs: number;
  readonly #questions: Question[] = [];
  #rest = "";
  #code = 0;
  #timer: Timer | undefined;
  #failure: BirdUnreachable | undefined;

  static async connect(path: string, timeoutMs = TIMEOUT_MS): Promise<BirdControl> {
    const control = new BirdControl(path, connect(path), timeoutMs);
    const [hello] = await control.#expect("");
    if (hello?.code !== HELLO) throw control.#fail(new BirdUnreachable(path, "it is not BIRD that answers"));
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

  /** @throws BirdRefused, BirdUnreachable */
  async ask(command: string): Promise<readonly ReplyLine[]> {
    if (/[\n\r\0]/.test(command)) throw new TypeError("a command is one line");
    if (this.#failure !== undefined) throw this.#failure;
    const lines = await this.#expect(command);
    const last = lines.at(-1);
    if (last !== undefined && last.code >= FIRST_ERROR) throw new BirdRefused(command, last.code, last.text);
    return lines;
  }

  [Symbol.dispose](): void {
    this.#fail(new BirdUnreachable(this.#path, "we hung up"));
  }

  #expect(command: string): Promise<readonly ReplyLine[]> {
    return new Promise((resolve, reject) => {
      this.#questions.push({ command, lines: [], resolve, reject });
      if (this.#questions.length === 1) this.#send();
      this.#watch();
    });
  }

  #read(chunk: string): void {
    const lines = (this.#rest + chunk).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#take(line);
    this.#watch();
  }

  #take(line: string): void {
    const question = this.#questions[0];
    if (question === undefined) return;
    const parsed = parseReplyLine(line, this.#code);
    if (parsed === undefined) {
      this.#fail(new BirdUnreachable(this.#path, `it said ${JSON.stringify(line.slice(0, 80))}, which is no answer`));
      return;
    }
    this.#code = parsed.code;
    question.lines.push({ code: parsed.code, text: parsed.text });
    if (!parsed.isLast) return;
    this.#questions.shift();
    question.resolve(question.lines);
    this.#send();
  }

  /** The next question; the greeting comes unasked. */
  #send(): void {
    const question = this.#questions[0];
    if (question !== undefined && question.command !== "") this.#socket.write(`${question.command}\n`);
  }

  /** Each line must come in time. */
  #watch(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#questions.length === 0 || this.#failure !== undefined) return;
    const reason = `nothing within ${this.#timeoutMs} ms`;
    this.#timer = setTimeout(() => this.#fail(new BirdUnreachable(this.#path, reason)), this.#timeoutMs);
  }

  #fail(error: BirdUnreachable): BirdUnreachable {
    if (this.#failure !== undefined) return this.#failure;
    this.#failure = error;
    clearTimeout(this.#timer);
    this.#socket.destroy();
    for (const question of this.#questions.splice(0)) question.reject(error);
    return error;
  }
}
