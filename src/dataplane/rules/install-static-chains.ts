// Sets the chains that every node has, once at start.
import type { RulesConfig } from "./config.ts";
import { filterChains, filterHooks } from "./filter-chains.ts";
import type { RuleChain, TableName } from "./rule.ts";
import type { FamilyRules } from "./rule-table.ts";
import { mangleChains, mangleHooks, natChains, natHooks, rawChains, rawHooks } from "./static-chains.ts";
import type { HookRules } from "./static-rules.ts";

export function installStaticChains(config: RulesConfig, families: readonly FamilyRules[]): void {
  for (const { tables, version } of families) {
    const install = (tableName: TableName, chains: readonly RuleChain[], hooks: HookRules) => {
      const table = tables[tableName];
      for (const chain of chains) table.setChain(chain);
      for (const [kernelChain, rules] of hooks.insert) table.setHook(kernelChain, "insert", rules);
      for (const [kernelChain, rules] of hooks.append) table.setHook(kernelChain, "append", rules);
    };
    install("raw", rawChains(config, version), rawHooks());
    install("mangle", mangleChains(config), mangleHooks());
    install("nat", natChains(config, version), natHooks());
    install("filter", filterChains(config, version), filterHooks(config));
  }
}
