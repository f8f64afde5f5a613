// Handles that count addresses they do not hold: who takes an address announces it in its handle first, and if it is
// killed before it writes the block nobody else knows of the handle. What is under way looks the same for a moment, so a
// handle is put right only when it stood so, unchanged, for the whole grace.
import type { Datastore, Stored } from "../../datastore/index.ts";
import { type Finding, findHandleFaults } from "../../ipam/index.ts";
import type { Block, IpamHandleKey } from "../../model/index.ts";

export class StrayHandles {
  readonly #suspects = new Map<string, { readonly revision: string; readonly sinceMs: number }>();

  /** What is to be put right now. */
  judge(
    state: { readonly handles: readonly Stored<IpamHandleKey>[]; readonly blocks: Iterable<Block> },
    nowMs: number,
    graceMs: number,
  ): readonly Finding[] {
    const { handles } = state;
    const blocks = [...state.blocks].map((value) => ({ value }));
    const revisions = new Map(handles.map(({ key, revision }) => [key.handleId, revision]));
    const ripe: Finding[] = [];
    const present = new Set<string>();
    for (const finding of findHandleFaults({ blocks, handles })) {
      if (finding.kind !== "leaked-handle") continue;
      const { handleId } = finding;
      const revision = revisions.get(handleId) ?? "";
      present.add(handleId);
      const known = this.#suspects.get(handleId);
      if (known?.revision !== revision) this.#suspects.set(handleId, { revision, sinceMs: nowMs });
      else if (nowMs - known.sinceMs > graceMs) ripe.push(finding);
    }
    for (const handleId of this.#suspects.keys()) if (!present.has(handleId)) this.#suspects.delete(handleId);
    return ripe;
  }
}

export const listHandles = async (store: Datastore, signal: AbortSignal): Promise<readonly Stored<IpamHandleKey>[]> =>
  (await store.list({ type: "ipamHandle" }, { signal })).items;
