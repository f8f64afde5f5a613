// Resolves conflicts between resources that derive the same key from their contents, such as two pools with the same
// CIDR: the resource with the lowest name is used. If it is deleted or changes its key, the next one is used.
import { keyPath } from "../keys/key-path.ts";
import type { KeyValue } from "../stored/derived.ts";
import type { Key } from "../keys/keys.ts";
import type { Resource } from "../resource.ts";
import { compareText } from "../selector/ast.ts";
import { convertOrReport, type DerivedUpdate, resourceKey, resourceOf, type UpdateProcessor } from "./processor.ts";

export function conflictResolving(
  convert: (resource: Resource, report: (problem: string) => void) => KeyValue | undefined,
): UpdateProcessor {
  const byName = new Map<string, KeyValue>();
  /** The names of the resources that derive a key, by its path. */
  const claimants = new Map<string, Set<string>>();

  const winnerOf = (path: string): string | undefined => {
    let lowest: string | undefined;
    for (const name of claimants.get(path) ?? [])
      if (lowest === undefined || compareText(name, lowest) < 0) lowest = name;
    return lowest;
  };
  /** Returns the update of a key whose claimants have changed. */
  const updateFor = (key: Key, path: string): DerivedUpdate => {
    const winner = winnerOf(path);
    const entry = winner === undefined ? undefined : byName.get(winner);
    return { key, value: entry?.value } as DerivedUpdate;
  };

  return {
    reset: () => {
      byName.clear();
      claimants.clear();
    },
    process: (update, report) => {
      const { name } = resourceKey(update.key);
      const before = byName.get(name);
      const after = convertOrReport(resourceOf(update), convert, report);
      const pathBefore = before === undefined ? undefined : keyPath(before.key);
      const pathAfter = after === undefined ? undefined : keyPath(after.key);
      const updates: DerivedUpdate[] = [];

      if (after === undefined) byName.delete(name);
      else byName.set(name, after);
      if (before !== undefined && pathBefore !== undefined && pathBefore !== pathAfter) {
        const wasWinner = winnerOf(pathBefore) === name;
        const others = claimants.get(pathBefore);
        others?.delete(name);
        if (others?.size === 0) claimants.delete(pathBefore);
        if (wasWinner) updates.push(updateFor(before.key, pathBefore));
      }
      if (after !== undefined && pathAfter !== undefined) {
        const others = claimants.get(pathAfter) ?? new Set();
        claimants.set(pathAfter, others.add(name));
        if (winnerOf(pathAfter) === name) updates.push({ key: after.key, value: after.value } as DerivedUpdate);
        else report(`${pathAfter} is already claimed by ${winnerOf(pathAfter)}: not used`);
      }
      return updates;
    },
  };
}
