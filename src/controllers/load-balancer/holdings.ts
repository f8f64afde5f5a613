// Which addresses services hold, as the blocks say: by service, and there by handle, for one that was deleted and made
// again has another handle under the same name.
import { ATTRIBUTE, allocationsIn } from "../../ipam/index.ts";
import type { IpAddress } from "../../lib/ip.ts";
import type { Block } from "../../model/index.ts";

interface Holding {
  readonly service: string;
  readonly handleId: string;
  readonly address: IpAddress;
}

export class Holdings {
  readonly #byBlock = new Map<string, readonly Holding[]>();
  readonly #byService = new Map<string, Set<Holding>>();

  /** @returns the services that are concerned */
  setBlock(cidr: string, block: Block | undefined): ReadonlySet<string> {
    const concerned = new Set<string>();
    for (const holding of this.#byBlock.get(cidr) ?? []) {
      const holdings = this.#byService.get(holding.service);
      holdings?.delete(holding);
      if (holdings?.size === 0) this.#byService.delete(holding.service);
      concerned.add(holding.service);
    }
    const now = block === undefined ? [] : holdingsIn(block);
    if (now.length === 0) this.#byBlock.delete(cidr);
    else this.#byBlock.set(cidr, now);
    for (const holding of now) {
      const holdings = this.#byService.get(holding.service) ?? new Set();
      this.#byService.set(holding.service, holdings.add(holding));
      concerned.add(holding.service);
    }
    return concerned;
  }

  services(): Iterable<string> {
    return this.#byService.keys();
  }

  handlesOf(service: string): ReadonlySet<string> {
    return new Set([...(this.#byService.get(service) ?? [])].map(({ handleId }) => handleId));
  }

  addressesOf(service: string, handleId: string): readonly IpAddress[] {
    return [...(this.#byService.get(service) ?? [])].flatMap((holding) =>
      holding.handleId === handleId ? [holding.address] : [],
    );
  }
}

const holdingsIn = (block: Block): readonly Holding[] =>
  allocationsIn(block).flatMap(({ attributes, handleId, address, coolingDown }) => {
    const { [ATTRIBUTE.service]: name, [ATTRIBUTE.namespace]: namespace } = attributes;
    if (coolingDown || handleId === undefined || name === undefined || namespace === undefined) return [];
    return [{ service: `${namespace}/${name}`, handleId, address }];
  });
