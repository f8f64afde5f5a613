// Limits the connections to Typha that have not finished their TLS handshake, per source address and in total. Any host on
// the network can open such connections, and each uses a file descriptor and memory until its deadline.
import type { Socket } from "node:net";

export interface HandshakeLimits {
  readonly perAddress: number;
  readonly total: number;
}

/** A node has about five clients; with address translation between nodes and Typha, many nodes have one address. */
export const HANDSHAKE_LIMITS: HandshakeLimits = { perAddress: 100, total: 2000 };

type Peer = Pick<Socket, "remoteAddress" | "remotePort">;
/** The part of a socket that is used here. */
export type PendingSocket = Peer & { destroy(): unknown; once(event: "close", listener: () => void): unknown };

interface Handshake {
  readonly address: string;
  readonly port: number;
  readonly socket: PendingSocket;
  readonly deadline: Timer;
}

export class PendingHandshakes {
  readonly #limits: HandshakeLimits;
  readonly #timeoutMs: number;
  /** By address, then by port; the oldest first. */
  readonly #handshakes = new Map<string, Map<number, Handshake>>();
  #count = 0;

  constructor(limits: HandshakeLimits, timeoutMs: number) {
    this.#limits = limits;
    this.#timeoutMs = timeoutMs;
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Starts the deadline of a new connection. If there are too many in total, the oldest one of the address that has most
   * of them is destroyed, unless the new connection's address has as many.
   * @returns false if the new connection was destroyed because of a limit
   */
  add(socket: PendingSocket): boolean {
    const { remoteAddress: address, remotePort: port } = socket;
    const own = this.#handshakes.get(address ?? "")?.size ?? 0;
    const isTooMany =
      own >= this.#limits.perAddress || (this.#count >= this.#limits.total && !this.#destroyOneOfMoreThan(own));
    // A connection that was closed at once has no address.
    if (isTooMany || address === undefined || port === undefined) {
      socket.destroy();
      return !isTooMany;
    }
    const handshake = { address, port, socket, deadline: setTimeout(() => this.#destroy(handshake), this.#timeoutMs) };
    const ofAddress = this.#handshakes.get(address) ?? new Map<number, Handshake>();
    this.#handshakes.set(address, ofAddress.set(port, handshake));
    this.#count++;
    socket.once("close", () => this.#remove(handshake));
    return true;
  }

  /** The handshake is complete: the connection has its own timeouts from now on. */
  complete({ remoteAddress, remotePort }: Peer): void {
    const handshake = this.#handshakes.get(remoteAddress ?? "")?.get(remotePort ?? 0);
    if (handshake !== undefined) this.#remove(handshake);
  }

  destroyAll(): void {
    for (const ofAddress of [...this.#handshakes.values()])
      for (const handshake of [...ofAddress.values()]) this.#destroy(handshake);
  }

  /** @returns false if no address has more than `own` connections */
  #destroyOneOfMoreThan(own: number): boolean {
    let busiest: Map<number, Handshake> | undefined;
    for (const ofAddress of this.#handshakes.values()) if (ofAddress.size > (busiest?.size ?? own)) busiest = ofAddress;
    const [oldest] = busiest?.values() ?? [];
    if (oldest !== undefined) this.#destroy(oldest);
    return oldest !== undefined;
  }

  #destroy(handshake: Handshake): void {
    this.#remove(handshake);
    handshake.socket.destroy();
  }

  #remove(handshake: Handshake): void {
    clearTimeout(handshake.deadline);
    const ofAddress = this.#handshakes.get(handshake.address);
    if (ofAddress?.get(handshake.port) !== handshake) return;
    ofAddress.delete(handshake.port);
    if (ofAddress.size === 0) this.#handshakes.delete(handshake.address);
    this.#count--;
  }
}
