// Finds handles that count addresses which no block allocates to them. An assignment writes the handle before the block; if the
// program is killed between the two writes, the handle is leaked. An assignment in progress looks the same, so a handle is
// reported only if it has been unchanged for the grace period.
import type { Datastore, Stored } from "../../datastore/index.ts";
import { type Finding, findHandleFaults } from "../../ipam/index.ts";
import type { Block, IpamHandleKey } from "../../model/index.ts";

export class LeakedHandles {
  /** By handle ID. */
  readonly #suspects = new Map<string, { readonly revision: string; readonly sinceMs: number }>();

  /** @returns the handles to repair now */
  findExpired(
    state: { readonly handles: readonly Stored<IpamHandleKey>[]; readonly blocks: Iterable<Block> },
    nowMs: number,
    graceMs: number,
  ): readonly Finding[] {
    const { handles } = state;
    const blocks = [...state.blocks].map((value) => ({ value }));
    const revisions = new Map(handles.map(({ key, revision }) => [key.handleId, revision]));
    const expired: Finding[] = [];
    const present = new Set<string>();
    for (const finding of findHandleFaults({ blocks, handles })) {
      if (finding.kind !== "leaked-handle") continue;
      const { handleId } = finding;
      const revision = revisions.get(handleId) ?? "";
      present.add(handleId);
      const suspect = this.#suspects.get(handleId);
      if (suspect?.revision !== revision) this.#suspects.set(handleId, { revision, sinceMs: nowMs });
      else if (nowMs - suspect.sinceMs > graceMs) expired.push(finding);
    }
    for (const handleId of this.#suspects.keys()) if (!present.has(handleId)) this.#suspects.delete(handleId);
    return expired;
  }
}

export const listHandles = async (store: Datastore, signal: AbortSignal): Promise<readonly Stored<IpamHandleKey>[]> =>
  (await store.list({ type: "ipamHandle" }, { signal })).items;
