// Reports interfaces, their state, and their addresses. Addresses come from the table of local routes, so those of an
// interface that is down are known too.
//
// A loss (link down, link deleted, address removed) is reported after a short delay: if an interface flaps, or an address is
// moved, nothing is torn down in vain. Other changes are reported at once, unless a loss of the same interface is delayed.
import { type KernelEvent, type Link, type Route, type Rtnetlink, RT_TABLE_LOCAL } from "../../kernel/index.ts";
import { cidrAddress, type IpAddress } from "../../lib/ip/ip.ts";
import type { InterfaceMessage } from "../loop/manager.ts";

const DAMPING_MS = 100;

interface ReportedState {
  readonly index: number;
  readonly state: "up" | "down";
}

export interface InterfaceMonitorOptions {
  readonly kernel: Pick<Rtnetlink, "links" | "routes">;
  readonly onMessage: (message: InterfaceMessage) => void;
  /** True for interfaces that are not reported. */
  readonly isExcluded?: (name: string) => boolean;
  readonly dampingMs?: number;
}

export class InterfaceMonitor implements Disposable {
  readonly #options: InterfaceMonitorOptions;
  readonly #links = new Map<number, { readonly name: string; readonly isRunning: boolean }>();
  /** More than one index for a moment, while an interface is renamed. */
  readonly #indexes = new Map<string, Set<number>>();
  readonly #addresses = new Map<number, Set<IpAddress>>();
  readonly #reportedState = new Map<string, ReportedState>();
  readonly #reportedAddresses = new Map<string, string>();
  /** Set down since the last report, even if up again. The kernel has removed their routes and neighbours. */
  readonly #setDown = new Set<string>();
  readonly #delayed = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(options: InterfaceMonitorOptions) {
    this.#options = options;
  }

  /** Lists all interfaces and reports differences without delay. */
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
    const changed = new Set<string>();
    const lost = new Set<string>();
    const renamed = new Set<string>();
    for (const event of events) {
      if (event.type === "resync") this.resync();
      else if (event.type === "link") {
        const known = this.#links.get(event.link.index);
        if (known !== undefined && known.name !== event.link.name) renamed.add(known.name);
        if (event.isGone) {
          this.#dropLink(event.link.index);
          this.#addresses.delete(event.link.index);
          lost.add(known?.name ?? event.link.name);
        } else {
          this.#setLink(event.link);
          if (!event.link.isUp) this.#setDown.add(event.link.name);
          (event.link.isRunning ? changed : lost).add(event.link.name);
        }
      } else if (event.type === "route" && event.route.table === RT_TABLE_LOCAL) {
        const name = this.#setRoute(event.route, event.isGone);
        if (name !== undefined) (event.isGone ? lost : changed).add(name);
      }
    }
    // The loss of a name by renaming is not delayed: changes for the old name would affect another interface.
    for (const name of renamed) {
      clearTimeout(this.#delayed.get(name));
      this.#delayed.delete(name);
      this.#report(name);
    }
    for (const name of new Set([...lost, ...changed])) {
      if (this.#delayed.has(name)) continue; // reported after the delay
      if (lost.has(name)) this.#delay(name);
      else this.#report(name);
    }
  }

  [Symbol.dispose](): void {
    for (const timer of this.#delayed.values()) clearTimeout(timer);
    this.#delayed.clear();
  }

  #delay(name: string): void {
    const timer = setTimeout(() => {
      this.#delayed.delete(name);
      this.#report(name);
    }, this.#options.dampingMs ?? DAMPING_MS);
    this.#delayed.set(name, timer);
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
    this.#setDown.delete(name);
  }

  /** @returns the name of the interface if the route represents one of its addresses */
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

  /** Reports differences from the last report. */
  #report(name: string): void {
    if (this.#options.isExcluded?.(name) === true) return;
    const indexes = this.#indexes.get(name) ?? new Set();
    if (indexes.size > 1) return; // two interfaces with one name for a moment (a rename): report when one remains
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
    if (this.#setDown.delete(name) && state === "up" && before?.state === "up" && before.index === index)
      for (const each of ["down", "up"] as const) onMessage({ type: "interfaceState", name, index, state: each });
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
