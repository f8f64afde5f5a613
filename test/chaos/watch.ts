// Probes continuously which pods can connect: each denied connection about ten times a second, each allowed one slightly more
// often. Violations are recorded with their time.
import type { PacketProber, ProbeRequest } from "../../src/kernel/index.ts";
import type { LabPod } from "../../src/lab/folder.ts";

export interface Pair {
  readonly from: LabPod;
  readonly to: LabPod;
  readonly isAllowed: boolean;
  readonly request: ProbeRequest;
}
export interface Violation {
  /** Time of sending, of performance.now(). */
  readonly at: number;
  readonly pair: Pair;
}

const DENIED_MS = 100;
const ALLOWED_PAUSE_MS = 50;
/** A connection that takes longer has lost a packet: TCP retransmits after one second. */
const LOST_MS = 900;

export class Watch implements AsyncDisposable {
  readonly #prober: PacketProber;
  readonly #loops: Promise<void>[];
  #leaks: Violation[] = [];
  #losses: Violation[] = [];
  /** Start of the last round without a violation. */
  #closedAt = Number.NEGATIVE_INFINITY;
  #openAt = Number.NEGATIVE_INFINITY;
  #wrong = "nothing was tried yet";
  #isOver = false;

  constructor(prober: PacketProber, pairs: readonly Pair[]) {
    this.#prober = prober;
    const [allowed, denied] = [pairs.filter((pair) => pair.isAllowed), pairs.filter((pair) => !pair.isAllowed)];
    this.#loops = [this.#watchAllowed(allowed), this.#watchDenied(denied)];
  }

  /** Returns the violations since the last call: denied packets that passed, and allowed packets that were lost. */
  take(): { readonly leaks: readonly Violation[]; readonly losses: readonly Violation[] } {
    const seen = { leaks: this.#leaks, losses: this.#losses };
    this.#leaks = [];
    this.#losses = [];
    return seen;
  }

  /** Waits for a complete round without violations that started after the call. Returns its start. */
  async waitUntilCorrect(what: string, withinMs: number): Promise<number> {
    const began = performance.now();
    while (Math.min(this.#closedAt, this.#openAt) < began) {
      if (performance.now() > began + withinMs) throw new Error(`${what}: ${this.#wrong}`);
      await Promise.race([Bun.sleep(10), ...this.#loops]); // a loop ends only with an error
    }
    return Math.max(this.#closedAt, this.#openAt);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#loops);
  }

  async #watchAllowed(pairs: readonly Pair[]): Promise<void> {
    while (!this.#isOver) {
      const at = performance.now();
      const passed = await this.#passing(pairs, LOST_MS);
      const lost = pairs.filter((pair) => !passed.has(pair));
      for (const pair of lost) this.#losses.push({ at, pair });
      if (lost.length === 0) this.#openAt = at;
      else this.#wrong = `${passed.size} of ${pairs.length} allowed connections work`;
      await Bun.sleep(ALLOWED_PAUSE_MS);
    }
  }

  async #watchDenied(pairs: readonly Pair[]): Promise<void> {
    while (!this.#isOver) {
      const at = performance.now();
      const passed = await this.#passing(pairs, DENIED_MS);
      for (const pair of passed) this.#leaks.push({ at, pair });
      if (passed.size === 0) this.#closedAt = at;
      else this.#wrong = `${passed.size} connections pass that policy denies`;
      await Bun.sleep(0);
    }
  }

  async #passing(pairs: readonly Pair[], timeoutMs: number): Promise<ReadonlySet<Pair>> {
    const outcomes = await this.#prober.probe(
      pairs.map(({ request }) => request),
      { timeoutMs },
    );
    return new Set(pairs.filter((_, i) => outcomes[i]?.result === "reached"));
  }
}
