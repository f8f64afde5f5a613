// Finds the addresses of Typha: configured ones, or the instances of a Kubernetes service. The instance on this node comes
// first; the others are in random order, which distributes the clients.
import type { EndpointSlice } from "../datastore/index.ts";

export interface TyphaAddress {
  readonly host: string;
  readonly port: number;
  /** The node on which it runs, if known. */
  readonly nodeName?: string;
}
export const addressText = ({ host, port }: TyphaAddress): string =>
  host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;

export class DiscoveryError extends Error {
  override readonly name = "DiscoveryError";
}

/** The first connection did not succeed within its timeout. */
export class TyphaUnreachable extends Error {
  override readonly name = "TyphaUnreachable";
}

const DEFAULT_PORT = 5473;

/** Parses `host:port`, `[v6]:port`, or a comma-separated list of them. */
export function parseAddresses(text: string): readonly TyphaAddress[] {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .map((part) => {
      const [, v6, name, portText] = /^(?:\[([0-9a-fA-F:.%]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(part) ?? [];
      const host = v6 ?? name;
      const port = portText === undefined ? DEFAULT_PORT : Number(portText);
      if (host === undefined || port < 1 || port > 65535)
        throw new DiscoveryError(`Typha address ${JSON.stringify(part)}: want host:port or [v6]:port`);
      return { host, port };
    });
}

/** Returns the ready instances that have the port: those of this node first, each group in random order. */
export function orderInstances(
  slices: readonly EndpointSlice[],
  options: { readonly portName: string; readonly nodeName?: string; readonly random?: () => number },
): readonly TyphaAddress[] {
  const { portName, nodeName, random = Math.random } = options;
  const own = new Map<string, TyphaAddress>();
  const others = new Map<string, TyphaAddress>();
  for (const slice of slices) {
    const port = slice.ports?.find(({ name }) => name === portName)?.port;
    if (port === undefined) continue;
    for (const { addresses, nodeName: node, conditions } of slice.endpoints ?? []) {
      if (conditions?.ready === false) continue;
      const group = node !== undefined && node === nodeName ? own : others;
      for (const host of addresses) group.set(addressText({ host, port }), { host, port, nodeName: node });
    }
  }
  return [...shuffle([...own.values()], random), ...shuffle([...others.values()], random)];
}

function shuffle<T>(items: T[], random: () => number): T[] {
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    const [a, b] = [items[i], items[j]];
    if (a !== undefined && b !== undefined) [items[i], items[j]] = [b, a];
  }
  return items;
}

/** Time for which an address counts as tried. */
const TRIED_MS = 300_000;

/** Chooses every address once before any is repeated, so that a server that failed is not tried again at once. */
export class AttemptTracker {
  readonly #find: (refresh: boolean) => Promise<readonly TyphaAddress[]>;
  readonly #now: () => number;
  readonly #tried = new Map<string, number>();
  #known: readonly TyphaAddress[] = [];

  constructor(find: (refresh: boolean) => Promise<readonly TyphaAddress[]>, now: () => number = Date.now) {
    this.#find = find;
    this.#now = now;
  }

  /** Number of attempts before a longer pause. */
  get attempts(): number {
    return 2 * Math.max(this.#known.length, 3);
  }

  /** Records that the connection to an address has ended: other addresses are tried first. */
  markTried(address: string): void {
    this.#tried.set(address, this.#now());
  }

  /** Returns the next address. The first attempt of a round may use cached addresses; later ones look them up again. */
  async next(isFirst: boolean): Promise<TyphaAddress> {
    const oldest = this.#now() - TRIED_MS;
    for (const [address, at] of this.#tried) if (at < oldest) this.#tried.delete(address);
    if (!isFirst || this.#untried() === undefined) await this.#lookUp();
    if (this.#untried() === undefined) for (const known of this.#known) this.#tried.delete(addressText(known));
    const address = this.#untried();
    if (address === undefined) throw new DiscoveryError("no Typha found: missing Kubernetes service IP or port");
    this.#tried.set(addressText(address), this.#now());
    return address;
  }

  #untried(): TyphaAddress | undefined {
    return this.#known.find((candidate) => !this.#tried.has(addressText(candidate)));
  }

  /** If the lookup fails, the cached addresses are kept. */
  async #lookUp(): Promise<void> {
    try {
      this.#known = await this.#find(this.#known.length > 0);
    } catch (error) {
      if (this.#known.length === 0) throw error;
    }
  }
}
