import { describe, expect, test } from "bun:test";
import { IptablesError, type IptablesStore } from "../../kernel/index.ts";
import { silentLogger } from "../../lib/log.ts";
import { chain, drop, hostChain, inSet, jump, protocolIs, type Rule } from "../rules/rule.ts";
import { IptablesTable } from "./iptables-table.ts";
import { ALL_FEATURES } from "./text.ts";

const definite = () => new IptablesError("iptables-restore", 1, "iptables-restore: line 4 failed");

/** Keeps the rules of the last text that was taken, by chain; refuses what it is told to. */
class Store implements IptablesStore {
  readonly family = 4;
  readonly variant = "legacy";
  readonly chains = new Map<string, string[]>(["INPUT", "FORWARD", "OUTPUT"].map((name) => [name, []]));
  restores = 0;
  constructor(readonly judge: (text: string, chains: ReadonlyMap<string, string[]>) => Error | undefined) {}

  async save(): Promise<string> {
    const lines = [...this.chains.keys()].map((name) => `:${name} - [0:0]`);
    for (const [name, rules] of this.chains) for (const rule of rules) lines.push(`-A ${name} ${rule}`);
    return `*filter\n${lines.join("\n")}\nCOMMIT\n`;
  }

  async restore(text: string): Promise<void> {
    this.restores++;
    const after = new Map([...this.chains].map(([name, rules]) => [name, [...rules]]));
    for (const line of text.split("\n")) {
      const declared = /^:(\S+) /.exec(line)?.[1];
      if (declared !== undefined) after.set(declared, []);
      const [, verb, name = "", rest = ""] = /^-([AIRD]) (\S+) (.*)$/.exec(line) ?? [];
      const rules = after.get(name) ?? [];
      if (verb === "A") rules.push(rest);
      else if (verb === "I") rules.unshift(rest);
      else if (verb === "R") rules[Number.parseInt(rest, 10) - 1] = rest.replace(/^\d+ /, "");
      else if (verb === "D") rules.splice(/^\d+$/.test(rest) ? Number(rest) - 1 : rules.indexOf(rest), 1);
      const gone = /^--delete-chain (\S+)$/.exec(line)?.[1];
      if (gone !== undefined) after.delete(gone);
    }
    const error = this.judge(text, after);
    if (error !== undefined) throw error;
    this.chains.clear();
    for (const [name, rules] of after) this.chains.set(name, rules);
  }
}

function open(store: Store, refusedRetryMs = 60_000) {
  const table = new IptablesTable({
    layer: "filter",
    store,
    context: { config: { deny: "drop" } as never, version: 4, layer: "filter", features: ALL_FEATURES },
    insertMode: "insert",
    logger: silentLogger,
    postWriteMs: 3_600_000,
    refreshMs: 0,
    refusedRetryMs,
  });
  return { table, apply: () => table.apply(new AbortController().signal) };
}

const setRule: Rule = { match: [protocolIs("udp"), inSet("source", "s:x")], action: drop };
const plain: Rule = { match: [protocolIs("tcp")], action: drop };
const offer = (table: IptablesTable, ...rules: Rule[]) => {
  table.setChain(chain("cali-x", rules));
  table.setHook("FORWARD", "insert", [{ action: jump("cali-x") }]);
};
const written = (store: Store) => (store.chains.get("cali-x") ?? []).map((rule) => rule.replace(/^.*" ?/, ""));

test("a rule that is refused gives way to the nearest that is taken, alone", async () => {
  const store = new Store((text) => (text.includes("--match-set") ? definite() : undefined));
  const { table, apply } = open(store);
  offer(table, plain, setRule, plain);
  await apply();
  expect(written(store)).toEqual(["-p tcp --jump DROP", "-p udp --jump DROP", "-p tcp --jump DROP"]);
  expect(table.refused()).toMatchObject([
    { kind: "rule", where: "iptables filter cali-x, number 2", error: expect.stringContaining("line 4 failed") },
  ]);
  expect([...store.chains.keys()]).not.toContain("cali-probe");
});

describe("what passes is no refusal", () => {
  const cases = [
    ["the lock", 4, "Another app is currently holding the xtables lock. Stopped waiting after 10s."],
    ["memory", 1, "iptables-restore: Memory allocation problem."],
    ["a changed table", 4, "iptables: Resource temporarily unavailable."],
    ["a killed tool", undefined, ""],
    ["busy", 4, "iptables-nft-restore v1.8.9 (nf_tables): CHAIN_DEL failed (Device or resource busy): chain cali-x"],
  ] as const;
  for (const [name, code, words] of cases)
    test(name, async () => {
      let left = 6;
      const store = new Store((text) =>
        text.includes("--match-set") && left-- > 0 ? new IptablesError("iptables-restore", code, words) : undefined,
      );
      const { table, apply } = open(store);
      offer(table, setRule);
      await apply();
      expect(store.chains.get("cali-x")?.[0]).toContain("--match-set cali40s:x");
      expect(table.refused()).toEqual([]);
    });

  test("nor is a failure without words that does not come again", async () => {
    // Legacy says no more than "line 4 failed" when the kernel is short of memory: while it is, no rule is taken.
    let left = 4;
    const store = new Store(() => (left-- > 0 ? definite() : undefined));
    const { table, apply } = open(store);
    offer(table, setRule, plain);
    await apply();
    expect(store.chains.get("cali-x")?.[0]).toContain("--match-set cali40s:x");
    expect(table.refused()).toEqual([]);
  });
});

test("what shows only behind the kernel's chain that leads there is found there, by a jump no packet takes", async () => {
  /** Chains that lead to it, from the kernel's. */
  const reaches = (chains: ReadonlyMap<string, string[]>, from: string): boolean =>
    (chains.get(from) ?? []).some((rule) => {
      if (rule.includes("--match-set")) return true;
      const target = /--(?:jump|goto) (cali-\S+)/.exec(rule)?.[1];
      return target !== undefined && reaches(chains, target);
    });
  const jumps: string[] = [];
  const store = new Store((text, chains) => {
    jumps.push(...text.split("\n").filter((line) => line.startsWith("-A FORWARD") && line.includes("cali-probe")));
    return reaches(chains, "FORWARD") ? definite() : undefined;
  });
  const { table, apply } = open(store);
  table.setChain(hostChain("cali-FORWARD", [plain, { action: jump("cali-x") }]));
  table.setChain(chain("cali-x", [plain, setRule]));
  table.setHook("FORWARD", "insert", [{ action: jump("cali-FORWARD") }]);
  await apply();
  expect(written(store)).toEqual(["-p tcp --jump DROP", "-p udp --jump DROP"]);
  expect(table.refused().map(({ where }) => where)).toEqual(["iptables filter cali-x, number 2"]);
  for (const line of jumps) expect(line).toBe("-A FORWARD -i .. --jump cali-probe");
  expect(store.chains.get("FORWARD")).toHaveLength(1);
  expect([...store.chains.keys()]).not.toContain("cali-probe");
});

test("a jump to the host's policy never gives way: then nothing is written, and that is fatal", async () => {
  const store = new Store((text) =>
    /cali-INPUT .*--jump cali-from-host-endpoint/.test(text) ? definite() : undefined,
  );
  const { table, apply } = open(store);
  table.setChain(hostChain("cali-INPUT", [{ action: jump("cali-from-host-endpoint") }]));
  table.setChain(hostChain("cali-from-host-endpoint", [plain]));
  table.setHook("INPUT", "insert", [{ action: jump("cali-INPUT") }]);
  await expect(apply()).rejects.toThrow("cannot be programmed");
  expect(store.chains.get("INPUT")).toEqual([]);
});

test("refused rules are tried again in their own time, and whole again once they are taken", async () => {
  let isRefusing = true;
  const store = new Store((text) => (isRefusing && text.includes("--match-set") ? definite() : undefined));
  const { table, apply } = open(store, 40);
  offer(table, setRule);
  const { againInMs } = await apply();
  expect(againInMs).toBeLessThanOrEqual(40); // although nothing else is planned within the hour
  expect(table.refused()).toHaveLength(1);
  isRefusing = false;
  const end = performance.now() + 2000;
  while (table.refused().length > 0 && performance.now() < end) {
    const { againInMs: soon = 1 } = await apply(); // a timer may ring a little early
    await new Promise((resolve) => setTimeout(resolve, Math.min(soon, 40)));
  }
  expect(store.chains.get("cali-x")?.[0]).toContain("--match-set cali40s:x");
  expect(table.refused()).toEqual([]);
});
