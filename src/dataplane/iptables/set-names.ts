// Names of IP sets in the kernel: which of ours are there, and what a set is called that cannot have its own name yet.
import type { IpVersion } from "../../lib/ip.ts";

export class SetNames {
  /** Names of ours in the kernel. */
  readonly present = new Set<string>();
  readonly #version: IpVersion;
  #temporary = 0;

  constructor(version: IpVersion) {
    this.#version = version;
  }

  /** What the kernel has; others' names are not remembered. */
  found(names: Iterable<string>): void {
    this.present.clear();
    for (const name of names) if (this.#isOurs(name)) this.present.add(name);
  }

  #isOurs(name: string): boolean {
    const version = this.#version;
    if (name.startsWith(`cali${version}`) || name.startsWith(`felix-${version}`)) return true;
    return version === 4 && (name === "felix-masq-ipam-pools" || name === "felix-all-ipam-pools");
  }

  temporary(): string {
    for (;;) {
      const name = `cali${this.#version}t${this.#temporary++}`;
      if (!this.present.has(name)) return name;
    }
  }

  /** The same after every restart, so that nothing is written again; a numbered one where that too is another's. */
  standIn({ name, ownName }: { readonly name: string; readonly ownName: string }): string {
    return name === ownName ? `cali${this.#version}t${ownName.slice("cali40".length)}` : this.temporary();
  }
}
