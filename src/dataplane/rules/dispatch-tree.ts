// Converts a dispatch chain to plain chains, for iptables, which has no verdict maps.
import { chain, type DispatchChain, goto, hostChain, type Rule, type RuleChain } from "./rule.ts";

/**
 * Returns a tree of two levels. The root selects by the first character in which the interface names differ, so a packet
 * passes a few rules instead of one per interface.
 */
export function dispatchTree(dispatch: DispatchChain): RuleChain[] {
  const names = [...dispatch.targets.keys()].sort();
  const prefix = commonPrefix(names);
  const bins = new Map<string, string[]>();
  for (const name of names) {
    const key = name.slice(prefix.length, prefix.length + 1);
    const bin = bins.get(key);
    if (bin === undefined) bins.set(key, [name]);
    else bin.push(name);
  }
  const { direction, isHostWide } = dispatch;
  const make = isHostWide === true ? hostChain : chain;
  const leaf = (name: string): Rule => ({
    match: [{ kind: "interface", direction, name }],
    action: goto(dispatch.targets.get(name) ?? ""),
  });
  const root: Rule[] = [...(dispatch.before ?? [])];
  const children: RuleChain[] = [];
  for (const [key, bin] of bins) {
    const [only] = bin;
    if (bin.length === 1 && only !== undefined) {
      root.push(leaf(only));
      continue;
    }
    const child = `${dispatch.name}-${key}`;
    children.push(make(child, [...bin.map(leaf), ...dispatch.otherwise]));
    root.push({ match: [{ kind: "interface", direction, name: `${prefix}${key}*` }], action: goto(child) });
  }
  root.push(...dispatch.otherwise, ...(dispatch.after ?? []));
  return [...children, make(dispatch.name, root)];
}

function commonPrefix(names: readonly string[]): string {
  const [first = ""] = names;
  const last = names.at(-1) ?? "";
  let length = 0;
  while (length < first.length && first[length] === last[length]) length++;
  return first.slice(0, length);
}
