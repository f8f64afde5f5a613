// Allocates bits of the packet mark from the configured mask, in a fixed order, lowest first, exactly as Calico does.

export interface Marks {
  /** A policy or profile allowed the packet. Later tables read this bit, too. */
  readonly accept: number;
  /** A policy passed the packet to the next tier. */
  readonly pass: number;
  readonly drop: number;
  /** Temporary bits: the result of a group of matches, "the packet is from a workload", rate limits. */
  readonly scratch0: number;
  readonly scratch1: number;
  /** Packets that must not be encrypted by WireGuard again; 0 without WireGuard. */
  readonly wireguard: number;
  /** The number of the endpoint that sent the packet. With IPVS, later chains do not see the incoming interface. */
  readonly endpoint: number;
  /** The lowest endpoint bit: the packet came from no Calico endpoint. */
  readonly nonCalicoEndpoint: number;
  /** The bits that are cleared for incoming packets: accept, pass and both scratch bits. */
  readonly all: number;
}

export function allocateMarks(mask: number, options: { readonly withWireguard: boolean }): Marks {
  let rest = mask >>> 0;
  const take = (what: string): number => {
    const bit = (rest & -rest) >>> 0;
    if (bit === 0)
      throw new RangeError(`mark mask 0x${mask.toString(16)} has no bit left for ${what}; use a mask with more bits`);
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

/** Distributes the bits of a number over the bits of a mask, low to high. Returns undefined if the mask has too few bits. */
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
 * Assigns a number in the endpoint bits to each endpoint interface: the FNV hash of its name, or the next free number. The
 * same endpoint usually gets the same number after a restart.
 */
export class EndpointMarks {
  readonly #mask: number;
  readonly #size: number;
  readonly #byName = new Map<string, number>();
  readonly #taken = new Set<number>();

  constructor(marks: Marks) {
    this.#mask = marks.endpoint;
    this.#size = 2 ** bitCount(marks.endpoint);
    this.#taken.add(0).add(1); // 0: no mark; 1: no Calico endpoint
  }

  /** Returns the mark of an endpoint; undefined if all are in use. */
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
