// Reports changes of links, addresses, routes and neighbours, from rtnetlink multicast groups (rtnetlink(7)).
//
// A "resync" event means that events were lost: the consumer must dump the state again. The socket receives events from the
// moment it is opened, so open the monitor first and dump afterwards; then no change is missed.
import { writeSync } from "node:fs";
import { type InterfaceAddress, parseInterfaceAddress, RTM_DELADDR, RTM_NEWADDR } from "../route/addresses.ts";
import type { EventWorkerMessage, EventWorkerStart } from "./event-worker.ts";
import { type Link, parseLink, RTM_DELLINK, RTM_NEWLINK } from "../route/links.ts";
import { type Neighbour, parseNeighbour, RTM_DELNEIGH, RTM_NEWNEIGH } from "../route/neighbours.ts";
import { NetlinkError, checkSyscall } from "../sys/kernel-error.ts";
import { forEachMessage, type NetlinkMessage } from "./netlink-reader.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "./netlink-socket.ts";
import { parseRoute, RTM_DELROUTE, RTM_NEWROUTE, type Route } from "../route/route-message.ts";
import { close, eventfd } from "../sys/sys.ts";
import { workerUrl } from "../sys/worker-url.ts";

const GROUPS = { links: [1], neighbours: [3], addresses: [5, 9], routes: [7, 11] } as const;
const PENDING_LIMIT_BYTES = 64 << 20;

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
  /** Receives events in the kernel's order, in batches. */
  readonly onEvents: (events: readonly KernelEvent[]) => void;
  /** Called when the monitor has ended because of an error. Open another one and dump again. */
  readonly onFailure: (error: Error) => void;
  readonly receiveBufferBytes?: number;
}

export class EventMonitor implements AsyncDisposable {
  readonly #socket: NetlinkSocket;
  readonly #stopFd: number;
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
    this.#stopFd = checkSyscall(eventfd(), "create an eventfd");
    try {
      this.#worker = new Worker(workerUrl("kernel/netlink/event-worker"));
    } catch (error) {
      this.#socket[Symbol.dispose]();
      close(this.#stopFd);
      throw error;
    }
    this.#worker.onmessage = (event: MessageEvent<EventWorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message);
    // A thread that crashes posts no "closed" message.
    this.#worker.addEventListener("close", () => this.#end("the worker thread exited"));
    const start: EventWorkerStart = {
      fd: this.#socket.fd,
      stopFd: this.#stopFd,
      pending: this.#pending.buffer,
      pendingLimit: PENDING_LIMIT_BYTES,
    };
    this.#worker.postMessage(start);
  }

  /** Stops the thread and waits for it, because the descriptors must not be closed while the thread polls them. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isClosing) {
      this.#isClosing = true;
      writeSync(this.#stopFd, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
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
    if (this.#hasEnded) return; // "closed", the error event and the close event may all arrive
    this.#hasEnded = true;
    const wasRequested = this.#isClosing;
    this.#isClosing = true;
    this.#worker.terminate();
    this.#socket[Symbol.dispose]();
    close(this.#stopFd);
    this.#closed.resolve();
    if (!wasRequested) this.#options.onFailure(new Error(`event monitor ended: ${failure ?? "no reason given"}`));
  }
}

/** A message that cannot be parsed is treated like a lost one. */
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
      if (message.u8(0) !== 0) return undefined; // AF_BRIDGE: the state of a bridge port, not a link
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
