// Puts the chains every node has into the tables, once at start.
import type { RulesConfig } from "./config.ts";
import type { RulePlane } from "./layer-table.ts";
import { filterChains, filterHooks } from "./filter-chains.ts";
import type { Hooks } from "./hooks.ts";
import { mangleChains, mangleHooks, natChains, natHooks, rawChains, rawHooks } from "./static-chains.ts";
import type { Layer, RuleChain } from "./rule.ts";

export function installStaticChains(config: RulesConfig, planes: readonly RulePlane[]): void {
  for (const { tables, version } of planes) {
    const put = (layer: Layer, chains: readonly RuleChain[], hooks: Hooks) => {
      const table = tables[layer];
      for (const built of chains) table.setChain(built);
      for (const [kernelChain, rules] of hooks.insert) table.setHook(kernelChain, "insert", rules);
      for (const [kernelChain, rules] of hooks.append) table.setHook(kernelChain, "append", rules);
    };
    put("raw", rawChains(config, version), rawHooks());
    put("mangle", mangleChains(config), mangleHooks());
    put("nat", natChains(config, version), natHooks());
    put("filter", filterChains(config, version), filterHooks(config));
  }
}
