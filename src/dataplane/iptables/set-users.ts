// Which rules in the kernel name an IP set: what to delete so that the set can go.
import type { IptablesStore } from "../../kernel/index.ts";
import { LAYERS } from "../rules/rule.ts";

const MOST = 5;

/** Commands that would add the rules that name the set, at most a handful. */
export async function rulesNaming(
  set: string,
  stores: readonly IptablesStore[],
  signal: AbortSignal,
): Promise<string[]> {
  const found: string[] = [];
  for (const store of stores)
    for (const layer of LAYERS) {
      const tool = `${store.family === 4 ? "iptables" : "ip6tables"}-${store.variant}`;
      const text = await store.save(layer, signal).catch(() => "");
      for (const line of text.split("\n"))
        if (line.startsWith("-A ") && /--(match|add|del|map)-set /.test(line) && line.split(" ").includes(set))
          found.push(`${tool} -t ${layer} ${line}`);
      if (found.length >= MOST) return found.slice(0, MOST);
    }
  return found;
}
