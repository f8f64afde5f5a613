// Namespaces of a test's own: made by us, looked at with `ip -j`, gone afterwards.
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  createNamedNamespace,
  deleteNamedNamespace,
  NetworkNamespace,
  openRouteKernel,
} from "../../../src/kernel/index.ts";

export const isRoot = process.getuid?.() === 0;
if (!isRoot) console.log("kernel tests need root for network namespaces: skipped");

export class TestNamespace implements Disposable {
  readonly name = `krt-${randomBytes(4).toString("hex")}`;
  readonly handle: NetworkNamespace;
  readonly kernel;

  constructor() {
    createNamedNamespace(this.name);
    this.handle = NetworkNamespace.named(this.name);
    this.kernel = openRouteKernel(this.handle);
    this.kernel.links.set("lo", { up: true });
  }

  /** `ip -j -d …` inside. */
  ip(...args: string[]): Record<string, unknown>[] {
    const output = execFileSync("ip", ["-n", this.name, "-j", "-d", ...args], { encoding: "utf8" });
    return output.trim() === "" ? [] : (JSON.parse(output) as Record<string, unknown>[]);
  }
  exec(command: string, ...args: string[]): string {
    return execFileSync("ip", ["netns", "exec", this.name, command, ...args], { encoding: "utf8", stdio: "pipe" });
  }
  /** A link of ours that is up, by index. */
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
