// Where Typha is: addresses that were configured, or the instances of a Kubernetes service, the one on our own node
// first, the others in random order so that clients spread.
import type { EndpointSlice } from "../datastore/index.ts";

export interface TyphaAddress {
  readonly host: string;
  readonly port: number;
  /** The node it runs on, where that is known. */
  readonly nodeName?: string;
}
export const addressText = ({ host, port }: TyphaAddress): string =>
  host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;

export class DiscoveryError extends Error {
  override readonly name = "DiscoveryError";
}

/** No server answered in all the time there was for the first connection. */
export class TyphaUnreachable extends Error {
  override readonly name = "TyphaUnreachable";
}

const DEFAULT_PORT = 5473;

/** `host:port`, `[v6]:port`, or a comma-separated list of them. */
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

/** Ready instances that have the port, this node's first, each group shuffled. */
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

/** How long an address counts as tried. */
const REMEMBER_MS = 300_000;

/** Tries every address once before any a second time: whoever let us go, or failed us, is not asked again at once. */
export class AttemptTracker {
  readonly #find: (refresh: boolean) => Promise<readonly TyphaAddress[]>;
  readonly #now: () => number;
  readonly #tried = new Map<string, number>();
  #known: readonly TyphaAddress[] = [];

  constructor(find: (refresh: boolean) => Promise<readonly TyphaAddress[]>, now: () => number = Date.now) {
    this.#find = find;
    this.#now = now;
  }

  /** How many attempts one (re)connection is worth. */
  get attempts(): number {
    return 2 * Math.max(this.#known.length, 3);
  }

  /** The connection to it has ended, however long it lasted: others first. */
  left(address: string): void {
    this.#tried.set(address, this.#now());
  }

  /** The next one to try. The first attempt of a round takes what is known and untried, later ones look again. */
  async next(isFirst: boolean): Promise<TyphaAddress> {
    const oldest = this.#now() - REMEMBER_MS;
    for (const [address, at] of this.#tried) if (at < oldest) this.#tried.delete(address);
    if (!isFirst || this.#untried() === undefined) await this.#look();
    if (this.#untried() === undefined) for (const known of this.#known) this.#tried.delete(addressText(known));
    const address = this.#untried();
    if (address === undefined) throw new DiscoveryError("no Typha found: missing Kubernetes service IP or port");
    this.#tried.set(addressText(address), this.#now());
    return address;
  }

  #untried(): TyphaAddress | undefined {
    return this.#known.find((candidate) => !this.#tried.has(addressText(candidate)));
  }

  /** Who cannot be asked where Typha is takes nothing away from what is known. */
  async #look(): Promise<void> {
    try {
      this.#known = await this.#find(this.#known.length > 0);
    } catch (error) {
      if (this.#known.length === 0) throw error;
    }
  }
}
