// Creates the network namespaces of one test, and deletes them together.
import { execFileSync } from "node:child_process";
import { NetworkNamespace, procSysctls } from "../../../src/kernel/index.ts";
import { TestNamespace } from "../kernel/test-namespace.ts";

export class TestSpaces implements Disposable {
  readonly #spaces: TestNamespace[] = [];
  readonly #handles: NetworkNamespace[] = [];

  /** Creates a namespace without duplicate address detection, so that addresses are usable immediately. */
  make(prefix: string): TestNamespace {
    const space = new TestNamespace(`${prefix}${this.#spaces.length}`);
    this.#spaces.push(space);
    space.enter(() => {
      for (const which of ["all", "default"]) procSysctls.write(["net", "ipv6", "conf", which, "accept_dad"], 0);
    });
    return space;
  }

  open(space: TestNamespace): NetworkNamespace {
    const handle = NetworkNamespace.named(space.name);
    this.#handles.push(handle);
    return handle;
  }

  [Symbol.dispose](): void {
    for (const handle of this.#handles) handle[Symbol.dispose]();
    for (const space of this.#spaces) space[Symbol.dispose]();
  }
}

/** Runs commands of `ip` in a namespace with one process, because its start is the main cost. */
export function ip(space: string, ...commands: readonly string[]): void {
  execFileSync("ip", ["-n", space, "-batch", "-"], { input: `${commands.join("\n")}\n`, stdio: "pipe" });
}
