// Finds the rules that use an IP set. They must be deleted before the set can be deleted.
import type { IptablesStore } from "../../kernel/index.ts";
import { TABLE_NAMES } from "../rules/rule.ts";

const MAX_RULES = 5;

/** Returns at most five rules, as the commands that would add them. */
export async function rulesUsing(
  set: string,
  stores: readonly IptablesStore[],
  signal: AbortSignal,
): Promise<string[]> {
  const found: string[] = [];
  for (const store of stores)
    for (const tableName of TABLE_NAMES) {
      const tool = `${store.family === 4 ? "iptables" : "ip6tables"}-${store.variant}`;
      const text = await store.save(tableName, signal).catch(() => "");
      for (const line of text.split("\n"))
        if (line.startsWith("-A ") && /--(match|add|del|map)-set /.test(line) && line.split(" ").includes(set))
          found.push(`${tool} -t ${tableName} ${line}`);
      if (found.length >= MAX_RULES) return found.slice(0, MAX_RULES);
    }
  return found;
}
