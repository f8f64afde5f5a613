// A network namespace for tests, created and deleted with ip-netns(8).
import { execFileSync } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { CLONE_NEWNET, setns } from "../../../src/kernel/sys/sys.ts";

let created = 0;

export class TestNamespace implements Disposable {
  readonly name: string;

  constructor(purpose: string) {
    this.name = `ct-${purpose}-${process.pid}-${created++}`;
    execFileSync("ip", ["netns", "add", this.name]);
    execFileSync("ip", ["-n", this.name, "link", "set", "lo", "up"]);
  }

  /** Runs synchronous code inside the namespace. Sockets that it opens stay there. */
  enter<T>(body: () => T): T {
    const previous = openSync("/proc/thread-self/ns/net", "r");
    const target = openSync(`/run/netns/${this.name}`, "r");
    try {
      if (setns(target, CLONE_NEWNET) < 0) throw new Error(`cannot enter ${this.name}: run as root`);
      return body();
    } finally {
      setns(previous, CLONE_NEWNET);
      closeSync(target);
      closeSync(previous);
    }
  }

  /** Runs a command inside the namespace and returns its output. */
  run(command: string, args: readonly string[], input?: string): string {
    return execFileSync("ip", ["netns", "exec", this.name, command, ...args], {
      encoding: "utf8",
      stdio: ["pipe", "pipe", "pipe"],
      maxBuffer: 1 << 28,
      input,
    });
  }

  [Symbol.dispose](): void {
    execFileSync("ip", ["netns", "del", this.name]);
  }
}
