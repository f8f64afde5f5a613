// Tests every recorded state in nftables mode: the kernel accepts it in one transaction, and a restart changes nothing.
import { expect, test } from "bun:test";
import { NftTable } from "../../../src/dataplane/nft/nft-table.ts";
import { NftTables } from "../../../src/dataplane/nft/nft-tables.ts";
import { createRuleManagers } from "../../../src/dataplane/rule-managers.ts";
import { Nft } from "../../../src/kernel/index.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { TestNamespace } from "../kernel/test-namespace.ts";
import { recordedInterfaces, recordedMessages, recordedStates } from "./recordings.ts";
import { recordedRules } from "./settings.ts";

async function program(ruleset: Nft, state: string): Promise<number[]> {
  const messages = recordedMessages(state);
  const config = recordedRules(messages);
  const families = ([4, 6] as const).map((version) => new NftTable(version, config));
  const commits: number[] = [];
  const tables = new NftTables({
    tables: families,
    ruleset,
    logger: silentLogger,
    refreshMs: 0,
    onCommit: (ok, changes) => {
      expect(ok).toBe(true);
      commits.push(changes);
    },
  });
  const { managers } = createRuleManagers({
    config,
    families,
    chainNameLimit: 200,
    hostname: "node-a",
    externalNodes: [],
    floatingIps: true,
    logger: silentLogger,
  });
  for (const message of [...recordedInterfaces(messages), ...messages])
    for (const manager of managers) manager.onUpdate(message);
  const { signal } = new AbortController();
  for (const manager of managers) manager.resolve?.();
  for (const manager of managers) await manager.apply?.(signal);
  await tables.apply(signal);
  return commits;
}

for (const state of recordedStates())
  test(`FD-100 FD-101 FD-102 ${state}: one transaction, and no change after a restart`, async () => {
    using namespace = new TestNamespace("dpnft");
    using ruleset = namespace.enter(() => new Nft());
    expect(await program(ruleset, state)).toHaveLength(1);
    expect(await program(ruleset, state)).toEqual([]);
    expect(namespace.run("nft", ["list", "ruleset"])).toContain("Unknown interface");
  });
