// Which interfaces there are, whether they run, and which addresses are theirs. Addresses come from the table of local
// routes, so those of an interface that is down are known before it comes up.
//
// Bad news (down, gone, an address lost) waits a moment: an interface that flaps or an address that is moved would
// otherwise tear down what is needed again at once. Good news passes at once, unless bad news is still waiting.
import { type KernelEvent, type Link, type Route, type RouteKernel, RT_TABLE_LOCAL } from "../../kernel/index.ts";
import { cidrAddress, type IpAddress } from "../../lib/ip.ts";
import type { InterfaceMessage } from "../manager.ts";

const DAMPING_MS = 100;

interface Seen {
  readonly index: number;
  readonly state: "up" | "down";
}

export interface InterfaceMonitorOptions {
  readonly kernel: Pick<RouteKernel, "links" | "routes">;
  readonly onMessage: (message: InterfaceMessage) => void;
  /** Interfaces nobody wants to hear about. */
  readonly isExcluded?: (name: string) => boolean;
  readonly dampingMs?: number;
}

export class InterfaceMonitor implements Disposable {
  readonly #options: InterfaceMonitorOptions;
  readonly #links = new Map<number, { readonly name: string; readonly isRunning: boolean }>();
  /** More than one for a moment, when names move. */
  readonly #indexes = new Map<string, Set<number>>();
  readonly #addresses = new Map<number, Set<IpAddress>>();
  readonly #reportedState = new Map<string, Seen>();
  readonly #reportedAddresses = new Map<string, string>();
  /** Switched off since the last report, perhaps on again already: the kernel has dropped its routes and neighbours. */
  readonly #switchedOff = new Set<string>();
  readonly #held = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(options: InterfaceMonitorOptions) {
    this.#options = options;
  }

  /** Reads everything and reports what is new, without delay: at start, after lost events, now and then. */
  resync(): void {
    const { links, routes } = this.#options.kernel;
    const names = new Set(this.#names());
    this.#links.clear();
    this.#indexes.clear();
    this.#addresses.clear();
    for (const link of links.list()) this.#setLink(link);
    for (const version of [4, 6] as const)
      for (const route of routes.list({ version, table: RT_TABLE_LOCAL })) this.#setRoute(route, false);
    for (const name of this.#names()) names.add(name);
    for (const name of names) this.#report(name);
  }

  onEvents(events: readonly KernelEvent[]): void {
    const good = new Set<string>();
    const bad = new Set<string>();
    const renamed = new Set<string>();
    for (const event of events) {
      if (event.type === "resync") this.resync();
      else if (event.type === "link") {
        const known = this.#links.get(event.link.index);
        if (known !== undefined && known.name !== event.link.name) renamed.add(known.name);
        if (event.isGone) {
          this.#dropLink(event.link.index);
          this.#addresses.delete(event.link.index);
          bad.add(known?.name ?? event.link.name);
        } else {
          this.#setLink(event.link);
          if (!event.link.isUp) this.#switchedOff.add(event.link.name);
          (event.link.isRunning ? good : bad).add(event.link.name);
        }
      } else if (event.type === "route" && event.route.table === RT_TABLE_LOCAL) {
        const name = this.#setRoute(event.route, event.isGone);
        if (name !== undefined) (event.isGone ? bad : good).add(name);
      }
    }
    // A name that was taken away does not flap back, and whatever is done for it would hit another interface.
    for (const name of renamed) {
      clearTimeout(this.#held.get(name));
      this.#held.delete(name);
      this.#report(name);
    }
    for (const name of new Set([...bad, ...good])) {
      if (this.#held.has(name)) continue; // told when the wait is over
      if (bad.has(name)) this.#hold(name);
      else this.#report(name);
    }
  }

  [Symbol.dispose](): void {
    for (const timer of this.#held.values()) clearTimeout(timer);
    this.#held.clear();
  }

  #hold(name: string): void {
    const timer = setTimeout(() => {
      this.#held.delete(name);
      this.#report(name);
    }, this.#options.dampingMs ?? DAMPING_MS);
    this.#held.set(name, timer);
  }

  #setLink({ index, name, isRunning }: Link): void {
    if (this.#links.get(index)?.name !== name) {
      this.#dropLink(index);
      const indexes = this.#indexes.get(name);
      if (indexes === undefined) this.#indexes.set(name, new Set([index]));
      else indexes.add(index);
    }
    this.#links.set(index, { name, isRunning });
  }

  #dropLink(index: number): void {
    const name = this.#links.get(index)?.name;
    if (name === undefined) return;
    this.#links.delete(index);
    const indexes = this.#indexes.get(name);
    indexes?.delete(index);
    if (indexes?.size !== 0) return;
    this.#indexes.delete(name);
    this.#switchedOff.delete(name);
  }

  /** The interface's name, when the route is an address of one. */
  #setRoute(route: Route, isGone: boolean): string | undefined {
    if (route.type !== "local" || route.link === undefined) return undefined;
    const address = cidrAddress(route.destination);
    const addresses = this.#addresses.get(route.link);
    if (isGone) addresses?.delete(address);
    else if (addresses === undefined) this.#addresses.set(route.link, new Set([address]));
    else addresses.add(address);
    return this.#links.get(route.link)?.name;
  }

  *#names(): Iterable<string> {
    for (const { name } of this.#links.values()) yield name;
    yield* this.#reportedState.keys();
  }

  /** Tells what differs from what was told last. */
  #report(name: string): void {
    if (this.#options.isExcluded?.(name) === true) return;
    const indexes = this.#indexes.get(name) ?? new Set();
    if (indexes.size > 1) return; // two of one name for a moment (a rename): wait until one remains
    const [index] = indexes;
    const link = index === undefined ? undefined : this.#links.get(index);
    const before = this.#reportedState.get(name);
    const { onMessage } = this.#options;
    if (link === undefined || index === undefined) {
      if (before === undefined) return;
      this.#reportedState.delete(name);
      this.#reportedAddresses.delete(name);
      onMessage({ type: "interfaceAddresses", name, addresses: undefined });
      onMessage({ type: "interfaceState", name, index: before.index, state: "gone" });
      return;
    }
    const state = link.isRunning ? "up" : "down";
    if (this.#switchedOff.delete(name) && state === "up" && before?.state === "up" && before.index === index)
      for (const told of ["down", "up"] as const) onMessage({ type: "interfaceState", name, index, state: told });
    if (before?.index !== index || before.state !== state) {
      this.#reportedState.set(name, { index, state });
      onMessage({ type: "interfaceState", name, index, state });
    }
    const addresses = this.#addresses.get(index) ?? new Set<IpAddress>();
    const text = [...addresses].sort().join(" ");
    if (this.#reportedAddresses.get(name) === text) return;
    this.#reportedAddresses.set(name, text);
    onMessage({ type: "interfaceAddresses", name, addresses: new Set(addresses) });
  }
}
