// Watches without pause who reaches whom: every connection that policy denies is tried about ten times a second, every
// one that it allows a little more often. What is seen that should not be is kept with its time, to be judged later.
import type { PacketProber, ProbeRequest } from "../../src/kernel/index.ts";
import type { LabPod } from "../../src/lab/folder.ts";

export interface Pair {
  readonly from: LabPod;
  readonly to: LabPod;
  readonly isAllowed: boolean;
  readonly request: ProbeRequest;
}
export interface Sighting {
  /** When the packet was sent, by performance.now(). */
  readonly at: number;
  readonly pair: Pair;
}

const DENIED_MS = 100;
const ALLOWED_PAUSE_MS = 50;
/** A connection that did not get through by then has lost a packet: the next try of TCP comes after a second. */
const LOST_MS = 900;

export class Watch implements AsyncDisposable {
  readonly #prober: PacketProber;
  readonly #loops: Promise<void>[];
  #leaks: Sighting[] = [];
  #losses: Sighting[] = [];
  /** When the last try of all began that found nothing wrong. */
  #closedAt = Number.NEGATIVE_INFINITY;
  #openAt = Number.NEGATIVE_INFINITY;
  #wrong = "nothing was tried yet";
  #isOver = false;

  constructor(prober: PacketProber, pairs: readonly Pair[]) {
    this.#prober = prober;
    const [allowed, denied] = [pairs.filter((pair) => pair.isAllowed), pairs.filter((pair) => !pair.isAllowed)];
    this.#loops = [this.#watchAllowed(allowed), this.#watchDenied(denied)];
  }

  /** What was seen since the last call: what passed against policy, and what did not get through at once. */
  take(): { readonly leaks: readonly Sighting[]; readonly losses: readonly Sighting[] } {
    const seen = { leaks: this.#leaks, losses: this.#losses };
    this.#leaks = [];
    this.#losses = [];
    return seen;
  }

  /** Until all that is allowed and nothing else passes, tried later than now; returns since when. */
  async untilWhole(what: string, withinMs: number): Promise<number> {
    const began = performance.now();
    while (Math.min(this.#closedAt, this.#openAt) < began) {
      if (performance.now() > began + withinMs) throw new Error(`${what}: ${this.#wrong}`);
      await Promise.race([Bun.sleep(10), ...this.#loops]); // a loop ends only by failing
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
