// Kinds whose derived key follows from their contents, so that two resources may claim one key (two pools of one CIDR):
// the lowest name has it, and when that one goes or changes its key the next takes over.
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
  /** Path of the derived key → names of who claims it. */
  const claimants = new Map<string, Set<string>>();

  const holderOf = (path: string): string | undefined => {
    let lowest: string | undefined;
    for (const name of claimants.get(path) ?? [])
      if (lowest === undefined || compareText(name, lowest) < 0) lowest = name;
    return lowest;
  };
  /** What to say of a key once its claimants have changed. */
  const verdict = (key: Key, path: string): DerivedUpdate => {
    const holder = holderOf(path);
    const held = holder === undefined ? undefined : byName.get(holder);
    return { key, value: held?.value } as DerivedUpdate;
  };

  return {
    restart: () => {
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
        const wasHolder = holderOf(pathBefore) === name;
        const others = claimants.get(pathBefore);
        others?.delete(name);
        if (others?.size === 0) claimants.delete(pathBefore);
        if (wasHolder) updates.push(verdict(before.key, pathBefore));
      }
      if (after !== undefined && pathAfter !== undefined) {
        const others = claimants.get(pathAfter) ?? new Set();
        claimants.set(pathAfter, others.add(name));
        if (holderOf(pathAfter) === name) updates.push({ key: after.key, value: after.value } as DerivedUpdate);
        else report(`${pathAfter} is already claimed by ${holderOf(pathAfter)}: not used`);
      }
      return updates;
    },
  };
}
