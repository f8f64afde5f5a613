// What changes in the kernel's routing state, as it changes. A "resync" means events were lost: only a new dump tells
// the truth. The socket listens from the moment it is opened, so open first and dump afterwards: nothing falls between.
import { writeSync } from "node:fs";
import { type InterfaceAddress, parseInterfaceAddress, RTM_DELADDR, RTM_NEWADDR } from "./addresses.ts";
import type { EventWorkerMessage, EventWorkerStart } from "./event-worker.ts";
import { type Link, parseLink, RTM_DELLINK, RTM_NEWLINK } from "./links.ts";
import { type Neighbour, parseNeighbour, RTM_DELNEIGH, RTM_NEWNEIGH } from "./neighbours.ts";
import { NetlinkError, succeed } from "./netlink-error.ts";
import { forEachMessage, type NetlinkMessage } from "./netlink-reader.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "./netlink-socket.ts";
import { parseRoute, RTM_DELROUTE, RTM_NEWROUTE, type Route } from "./route-wire.ts";
import { close, eventfd } from "./sys.ts";
import { workerUrl } from "./worker-url.ts";

const GROUPS = { links: [1], neighbours: [3], addresses: [5, 9], routes: [7, 11] } as const;
const PENDING_LIMIT = 64 << 20;

export type EventSubject = keyof typeof GROUPS;

export type KernelEvent =
  | { readonly type: "link"; readonly link: Link; readonly isGone: boolean }
  | { readonly type: "address"; readonly address: InterfaceAddress; readonly isGone: boolean }
  | { readonly type: "route"; readonly route: Route; readonly isGone: boolean }
  | { readonly type: "neighbour"; readonly neighbour: Neighbour; readonly isGone: boolean }
  | { readonly type: "resync" };

export interface EventMonitorOptions {
  readonly subjects: readonly EventSubject[];
  readonly namespace?: { readonly fd: number };
  /** In the kernel's order; several that came together at once. */
  readonly onEvents: (events: readonly KernelEvent[]) => void;
  /** The monitor ended by itself. Open another one and dump again. */
  readonly onFailure: (why: Error) => void;
  readonly receiveBufferBytes?: number;
}

export class EventMonitor implements AsyncDisposable {
  readonly #socket: NetlinkSocket;
  readonly #wakeFd: number;
  readonly #worker: Worker;
  readonly #closed = Promise.withResolvers<void>();
  readonly #pending = new Int32Array(new SharedArrayBuffer(4));
  readonly #options: EventMonitorOptions;
  #isClosing = false;
  #hasEnded = false;

  constructor(options: EventMonitorOptions) {
    this.#options = options;
    const groups = options.subjects.flatMap((subject): readonly number[] => GROUPS[subject]);
    const { namespace, receiveBufferBytes = 16 << 20 } = options;
    this.#socket = NetlinkSocket.open(NETLINK_ROUTE, { groups, receiveBufferBytes, namespace });
    this.#wakeFd = succeed(eventfd(), "make a descriptor to wake a thread");
    try {
      this.#worker = new Worker(workerUrl("kernel/event-worker"));
    } catch (error) {
      this.#socket[Symbol.dispose]();
      close(this.#wakeFd);
      throw error;
    }
    this.#worker.onmessage = (event: MessageEvent<EventWorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message);
    // A thread that ends without a word: nothing is heard any more.
    this.#worker.addEventListener("close", () => this.#end("its thread ended"));
    const start: EventWorkerStart = {
      fd: this.#socket.fd,
      wakeFd: this.#wakeFd,
      pending: this.#pending.buffer,
      pendingLimit: PENDING_LIMIT,
    };
    this.#worker.postMessage(start);
  }

  /** Ends the thread and waits for it: the descriptors may only go when nobody polls them. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isClosing) {
      this.#isClosing = true;
      writeSync(this.#wakeFd, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    }
    await this.#closed.promise;
  }

  #receive(message: EventWorkerMessage): void {
    if (message.type === "closed") return this.#end(message.failure);
    if (message.type === "datagrams") Atomics.sub(this.#pending, 0, message.bytes.byteLength);
    if (this.#isClosing) return;
    const events: KernelEvent[] = message.type === "overrun" ? [{ type: "resync" }] : readDatagrams(message);
    if (events.length > 0) this.#options.onEvents(events);
  }

  #end(failure: string | undefined): void {
    if (this.#hasEnded) return; // an error, the farewell and the thread's end may come one after the other
    this.#hasEnded = true;
    const isOurWish = this.#isClosing;
    this.#isClosing = true;
    this.#worker.terminate();
    this.#socket[Symbol.dispose]();
    close(this.#wakeFd);
    this.#closed.resolve();
    if (!isOurWish) this.#options.onFailure(new Error(`kernel events ended: ${failure ?? "no reason given"}`));
  }
}

/** A message that cannot be read is treated like one that was lost: only a new dump shows the kernel's state. */
function readDatagrams(message: EventWorkerMessage & { type: "datagrams" }): KernelEvent[] {
  try {
    return parseDatagrams(message);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    return [{ type: "resync" }];
  }
}

function parseDatagrams({ bytes, lengths }: EventWorkerMessage & { type: "datagrams" }): KernelEvent[] {
  const events: KernelEvent[] = [];
  let at = 0;
  for (const length of lengths) {
    forEachMessage(new Uint8Array(bytes, at, length), length, (message) => {
      const event = parseEvent(message);
      if (event !== undefined) events.push(event);
    });
    at += length;
  }
  return events;
}

function parseEvent(message: NetlinkMessage): KernelEvent | undefined {
  const { type } = message;
  switch (type) {
    case RTM_NEWLINK:
    case RTM_DELLINK: {
      if (message.u8(0) !== 0) return undefined; // a bridge port's state, no link
      const link = parseLink(message);
      return link && { type: "link", link, isGone: type === RTM_DELLINK };
    }
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      const address = parseInterfaceAddress(message);
      return address && { type: "address", address, isGone: type === RTM_DELADDR };
    }
    case RTM_NEWROUTE:
    case RTM_DELROUTE: {
      const route = parseRoute(message);
      return route && { type: "route", route, isGone: type === RTM_DELROUTE };
    }
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH: {
      const neighbour = parseNeighbour(message);
      return neighbour && { type: "neighbour", neighbour, isGone: type === RTM_DELNEIGH };
    }
    default:
      return undefined;
  }
}
