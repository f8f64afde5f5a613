// Keeps the names of IP sets in the kernel that calico-ts owns, and generates temporary and alternate names.
import type { IpVersion } from "../../lib/ip/ip.ts";

export class SetNames {
  /** Owned names that exist in the kernel. */
  readonly present = new Set<string>();
  readonly #version: IpVersion;
  #temporary = 0;

  constructor(version: IpVersion) {
    this.#version = version;
  }

  /** Records the names in the kernel. Names of other programs are ignored. */
  found(names: Iterable<string>): void {
    this.present.clear();
    for (const name of names) if (this.#isOwned(name)) this.present.add(name);
  }

  #isOwned(name: string): boolean {
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

  /** Returns the same name after a restart, so that the set is found again; a numbered one if that name is used too. */
  alternateName({ name, ownName }: { readonly name: string; readonly ownName: string }): string {
    return name === ownName ? `cali${this.#version}t${ownName.slice("cali40".length)}` : this.temporary();
  }
}
