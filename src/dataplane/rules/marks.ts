// Bits of the packet mark that are ours, taken from a mask in a fixed order, lowest first: two programs given one mask
// agree on what each bit means.

export interface Marks {
  /** A policy or profile accepted; carries a verdict of an early table to later ones. */
  readonly accept: number;
  /** On to the next tier. */
  readonly pass: number;
  readonly drop: number;
  /** Scratch: match blocks, "came from a workload", rate limits. */
  readonly scratch0: number;
  readonly scratch1: number;
  /** Packets that WireGuard shall not take again; 0 without WireGuard. */
  readonly wireguard: number;
  /** Which endpoint a packet came from, where interfaces are lost on the way (IPVS). */
  readonly endpoint: number;
  /** The lowest endpoint bit: not one of our endpoints. */
  readonly nonCalicoEndpoint: number;
  /** What is cleared when a packet comes in: all but drop. */
  readonly all: number;
}

export function allocateMarks(mask: number, options: { readonly withWireguard: boolean }): Marks {
  let rest = mask >>> 0;
  const take = (what: string): number => {
    const bit = (rest & -rest) >>> 0;
    if (bit === 0) throw new RangeError(`mark mask 0x${mask.toString(16)} has no bit left for ${what}: give more bits`);
    rest = (rest & ~bit) >>> 0;
    return bit;
  };
  const accept = take("accept");
  const pass = take("pass");
  const drop = take("drop");
  const scratch0 = take("scratch 0");
  const scratch1 = take("scratch 1");
  const wireguard = options.withWireguard ? take("WireGuard") : 0;
  return {
    accept,
    pass,
    drop,
    scratch0,
    scratch1,
    wireguard,
    endpoint: rest,
    nonCalicoEndpoint: (rest & -rest) >>> 0,
    all: (accept | pass | scratch0 | scratch1) >>> 0,
  };
}

/** A number spread over the bits of a mask, low to high; nothing when it needs more bits than there are. */
export function scatterBits(value: number, mask: number): number | undefined {
  let result = 0;
  let rest = value;
  for (let bit = 0; bit < 32 && rest > 0; bit++) {
    const position = (1 << bit) >>> 0;
    if ((mask & position) === 0) continue;
    if ((rest & 1) === 1) result |= position;
    rest >>>= 1;
  }
  return rest === 0 ? result >>> 0 : undefined;
}

const bitCount = (mask: number): number => {
  let count = 0;
  for (let rest = mask >>> 0; rest !== 0; rest = (rest & (rest - 1)) >>> 0) count++;
  return count;
};

/**
 * Gives each endpoint interface a number inside the endpoint bits, the same one as long as nobody else claims it: the
 * FNV hash of its name, or the next free one.
 */
export class EndpointMarks {
  readonly #mask: number;
  readonly #size: number;
  readonly #byName = new Map<string, number>();
  readonly #taken = new Set<number>();

  constructor(marks: Marks) {
    this.#mask = marks.endpoint;
    this.#size = 2 ** bitCount(marks.endpoint);
    this.#taken.add(0).add(1); // 0: no mark; the lowest bit alone: not ours
  }

  /** The endpoint's mark; nothing when all are taken. */
  get(name: string): number | undefined {
    const known = this.#byName.get(name);
    if (known !== undefined) return scatterBits(known, this.#mask);
    if (this.#taken.size >= this.#size) return undefined;
    let number = fnv1(name) % this.#size;
    while (this.#taken.has(number)) number = (number + 1) % this.#size;
    this.#taken.add(number);
    this.#byName.set(name, number);
    return scatterBits(number, this.#mask);
  }

  release(name: string): void {
    const number = this.#byName.get(name);
    if (number === undefined) return;
    this.#byName.delete(name);
    this.#taken.delete(number);
  }
}

/** FNV-1 (not 1a), 32 bits. */
function fnv1(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) hash = (Math.imul(hash, 0x01000193) ^ byte) >>> 0;
  return hash >>> 0;
}
