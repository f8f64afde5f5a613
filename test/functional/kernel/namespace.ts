// A network namespace for one test file, gone afterwards whatever happened.
import { execFileSync } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { CLONE_NEWNET, setns } from "../../../src/kernel/sys.ts";

let made = 0;

export class TestNamespace implements Disposable {
  readonly name: string;

  constructor(purpose: string) {
    this.name = `ct-${purpose}-${process.pid}-${made++}`;
    execFileSync("ip", ["netns", "add", this.name]);
    execFileSync("ip", ["-n", this.name, "link", "set", "lo", "up"]);
  }

  /** Runs synchronous code inside: sockets opened there stay there. */
  enter<T>(body: () => T): T {
    const home = openSync("/proc/thread-self/ns/net", "r");
    const there = openSync(`/run/netns/${this.name}`, "r");
    try {
      if (setns(there, CLONE_NEWNET) < 0) throw new Error(`cannot enter ${this.name}: run as root`);
      return body();
    } finally {
      setns(home, CLONE_NEWNET);
      closeSync(there);
      closeSync(home);
    }
  }

  /** A command's output, run inside. */
  run(command: string, args: readonly string[], input?: string): string {
    return execFileSync("ip", ["netns", "exec", this.name, command, ...args], {
      encoding: "utf8",
      stdio: ["pipe", "pipe", "pipe"],
      maxBuffer: 1 << 28,
      ...(input === undefined ? {} : { input }),
    });
  }

  [Symbol.dispose](): void {
    execFileSync("ip", ["netns", "del", this.name]);
  }
}
