// Provides a network path that a test can cut: nft rules in a namespace drop packets to and from servers. The servers keep
// running and no reset is sent, as when a link, a firewall or a load balancer loses packets.
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createNamedNamespace, deleteNamedNamespace, NetworkNamespace, openRtnetlink } from "../../src/kernel/index.ts";
import { type Forwarder, forwardInto } from "./host-forwarder.ts";

/** Otherwise, tests that need a namespace are skipped. */
export const canCutPaths = process.getuid?.() === 0;

/** Drops packets between clients and servers in one namespace. */
export class PacketDrop {
  /** @param namespace name of the namespace */
  constructor(readonly namespace: string) {
    this.#nft("add table inet cut; add chain inet cut input { type filter hook input priority 0; }");
  }

  /** Drops all packets to and from the servers' ports. */
  cut(serverPorts: readonly number[]): void {
    this.#drop(serverPorts);
  }

  /** Drops the packets of the connections that exist now. New connections work. */
  cutExisting(serverPorts: readonly number[]): void {
    const clientPorts = this.connections(serverPorts).map(({ clientPort }) => clientPort);
    if (clientPorts.length === 0) throw new Error("no connection to cut");
    this.#drop(clientPorts);
  }

  /** Lets packets pass again. */
  open(): void {
    this.#nft("flush chain inet cut input");
  }

  /** Connections from clients to the servers, with the time since each received data. */
  connections(serverPorts: readonly number[]): { readonly clientPort: number; readonly idleMs: number }[] {
    return this.run("ss", ["-tnHiO", "state", "established"])
      .split("\n")
      .flatMap((line) => {
        const [, , local = "", peer = ""] = line.trim().split(/\s+/);
        const idleMs = Number(/ lastrcv:(\d+)/.exec(line)?.[1] ?? 0);
        return serverPorts.includes(portOf(peer)) ? [{ clientPort: portOf(local), idleMs }] : [];
      });
  }

  /** Runs a command in the namespace and returns its output. */
  run(command: string, args: readonly string[]): string {
    const words = ["netns", "exec", this.namespace, command, ...args];
    return execFileSync("ip", words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }

  #drop(ports: readonly number[]): void {
    const set = `{ ${[...new Set(ports)].join(", ")} }`;
    this.#nft(`add rule inet cut input tcp dport ${set} drop; add rule inet cut input tcp sport ${set} drop`);
  }

  #nft(commands: string): void {
    this.run("nft", [commands]);
  }
}

const portOf = (address: string): number => Number(address.slice(address.lastIndexOf(":") + 1));

/** A namespace whose programs connect to outside servers through relays. */
export class CutPath implements Disposable {
  readonly namespace = `cut-${randomBytes(3).toString("hex")}`;
  readonly #handle: NetworkNamespace;
  readonly #relays: Forwarder[] = [];
  readonly #packets: PacketDrop;

  constructor() {
    createNamedNamespace(this.namespace);
    this.#handle = NetworkNamespace.named(this.namespace);
    using kernel = openRtnetlink(this.#handle);
    kernel.links.set("lo", { up: true });
    this.#packets = new PacketDrop(this.namespace);
  }

  /** Prefix of a command that runs in the namespace. */
  get within(): readonly string[] {
    return ["ip", "netns", "exec", this.namespace];
  }

  /** Makes an outside server reachable in the namespace. Returns its URL there. */
  relayTo(serverUrl: string): string {
    const relay = forwardInto({ handle: this.#handle }, serverUrl);
    this.#relays.push(relay);
    return relay.url;
  }

  /** Drops all packets to and from the servers, or to and from one of them. */
  cut(url?: string): void {
    this.#packets.cut(url === undefined ? this.#ports : [Number(new URL(url).port)]);
  }

  /** Drops the packets of the connections that exist now. New connections work. */
  cutExisting(): void {
    this.#packets.cutExisting(this.#ports);
  }

  /** Lets packets pass again. */
  open(): void {
    this.#packets.open();
  }

  /** Returns status and body of a page that a program in the namespace serves. */
  page(url: string): { readonly status: number; readonly body: string } {
    const text = this.#packets.run("curl", ["-s", "-m", "5", "-w", "\n%{http_code}", url]);
    const end = text.lastIndexOf("\n");
    return { status: Number(text.slice(end + 1)), body: text.slice(0, end) };
  }

  [Symbol.dispose](): void {
    for (const relay of this.#relays) relay[Symbol.dispose]();
    this.#handle[Symbol.dispose]();
    deleteNamedNamespace(this.namespace);
  }

  get #ports(): readonly number[] {
    return this.#relays.map(({ port }) => port);
  }
}
