// A network namespace that a test creates through the code under test, and inspects with `ip -j`.
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  createNamedNamespace,
  deleteNamedNamespace,
  NetworkNamespace,
  openRtnetlink,
} from "../../../src/kernel/index.ts";

export const isRoot = process.getuid?.() === 0;
if (!isRoot) console.log("kernel tests need root for network namespaces: skipped");

export class RtnetlinkNamespace implements Disposable {
  readonly name = `krt-${randomBytes(4).toString("hex")}`;
  readonly handle: NetworkNamespace;
  readonly kernel;

  constructor() {
    createNamedNamespace(this.name);
    this.handle = NetworkNamespace.named(this.name);
    this.kernel = openRtnetlink(this.handle);
    this.kernel.links.set("lo", { up: true });
  }

  /** Runs `ip -j -d …` inside the namespace. */
  ip(...args: string[]): Record<string, unknown>[] {
    const output = execFileSync("ip", ["-n", this.name, "-j", "-d", ...args], { encoding: "utf8" });
    return output.trim() === "" ? [] : (JSON.parse(output) as Record<string, unknown>[]);
  }
  exec(command: string, ...args: string[]): string {
    return execFileSync("ip", ["netns", "exec", this.name, command, ...args], { encoding: "utf8", stdio: "pipe" });
  }
  /** Creates a veth pair with both ends up, and returns the index of the first. */
  addVeth(name: string, peer = `${name}p`): number {
    this.kernel.links.create({ name, up: true, type: { kind: "veth", peer: { name: peer } } });
    this.kernel.links.set(peer, { up: true });
    return this.index(name);
  }
  index(name: string): number {
    const link = this.kernel.links.get(name);
    if (link === undefined) throw new Error(`no link ${name} in ${this.name}`);
    return link.index;
  }

  [Symbol.dispose](): void {
    this.kernel[Symbol.dispose]();
    this.handle[Symbol.dispose]();
    deleteNamedNamespace(this.name);
  }
}
