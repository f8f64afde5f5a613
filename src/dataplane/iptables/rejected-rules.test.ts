import { describe, expect, test } from "bun:test";
import { IptablesError, type IptablesStore } from "../../kernel/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { chain, drop, hostChain, inSet, jump, protocolIs, type Rule } from "../rules/rule.ts";
import { IptablesTable } from "./iptables-table.ts";
import { findRejectedRules, type RuleProbe, type Suspect } from "./rejected-rules.ts";
import { ALL_FEATURES } from "./rule-text.ts";

const definite = () => new IptablesError("iptables-restore", 1, "iptables-restore: line 4 failed");

/** Keeps the rules of accepted inputs, by chain. `judge` returns the error for a rejected input. */
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

function open(store: Store, rejectedRetryMs = 60_000) {
  const table = new IptablesTable({
    tableName: "filter",
    store,
    context: { config: { deny: "drop" } as never, version: 4, tableName: "filter", features: ALL_FEATURES },
    insertMode: "insert",
    logger: silentLogger,
    postWriteMs: 3_600_000,
    refreshMs: 0,
    rejectedRetryMs,
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

test("a rejected rule is replaced by its closest accepted fallback, and no other rule is", async () => {
  const store = new Store((text) => (text.includes("--match-set") ? definite() : undefined));
  const { table, apply } = open(store);
  offer(table, plain, setRule, plain);
  await apply();
  expect(written(store)).toEqual(["-p tcp --jump DROP", "-p udp --jump DROP", "-p tcp --jump DROP"]);
  expect(table.rejected()).toMatchObject([
    { kind: "rule", where: "iptables filter cali-x rule 2", error: expect.stringContaining("line 4 failed") },
  ]);
  expect([...store.chains.keys()]).not.toContain("cali-probe");
});

describe("transient errors cause no fallbacks", () => {
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
      expect(table.rejected()).toEqual([]);
    });

  test("an error without a message that does not occur again", async () => {
    // Legacy iptables reports only "line 4 failed" if the kernel is short of memory; meanwhile it accepts no rule.
    let left = 4;
    const store = new Store(() => (left-- > 0 ? definite() : undefined));
    const { table, apply } = open(store);
    offer(table, setRule, plain);
    await apply();
    expect(store.chains.get("cali-x")?.[0]).toContain("--match-set cali40s:x");
    expect(table.rejected()).toEqual([]);
  });
});

test("a rule that is rejected only in a hook is found, with a jump from the hook that no packet takes", async () => {
  /** Whether a kernel chain leads to a rule with a set. */
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
  expect(table.rejected().map(({ where }) => where)).toEqual(["iptables filter cali-x rule 2"]);
  for (const line of jumps) expect(line).toBe("-A FORWARD -i .. --jump cali-probe");
  expect(store.chains.get("FORWARD")).toHaveLength(1);
  expect([...store.chains.keys()]).not.toContain("cali-probe");
});

test("a jump to host policy has no fallback: nothing is written, and the error is fatal", async () => {
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

test("rejected rules are tried again after a delay, and restored when the kernel accepts them", async () => {
  let isRejecting = true;
  const store = new Store((text) => (isRejecting && text.includes("--match-set") ? definite() : undefined));
  const { table, apply } = open(store, 40);
  offer(table, setRule);
  const { againInMs } = await apply();
  expect(againInMs).toBeLessThanOrEqual(40); // although the next recheck is an hour away
  expect(table.rejected()).toHaveLength(1);
  isRejecting = false;
  const end = performance.now() + 2000;
  while (table.rejected().length > 0 && performance.now() < end) {
    const { againInMs: soon = 1 } = await apply(); // a timer may fire a little early
    await new Promise((resolve) => setTimeout(resolve, Math.min(soon, 40)));
  }
  expect(store.chains.get("cali-x")?.[0]).toContain("--match-set cali40s:x");
  expect(table.rejected()).toEqual([]);
});

describe("findRejectedRules", () => {
  /** Accepts all rules except those for which `rejects` is true; counts tests and removals. */
  function fakeProbe(rejects: (rule: string, hooks: readonly string[]) => boolean) {
    const counts = { tests: 0, removals: 0 };
    const accepts = async (rules: readonly string[], hooks: readonly string[]) => {
      counts.tests++;
      return !rules.some((rule) => rejects(rule, hooks));
    };
    const probe: RuleProbe = {
      normalize: (texts) => texts.join("\n"),
      accepts,
      acceptsHarmlessRule: (hooks) => accepts(["harmless"], hooks),
      remove: async () => void counts.removals++,
    };
    return { probe, counts };
  }
  const suspect = (index: number, text = `rule ${index}`, given: Partial<Suspect> = {}): Suspect => ({
    chain: "c",
    index,
    texts: [text],
    fallbackTexts: [[`${text} closest`], [`${text} last`]],
    hooks: ["FORWARD"],
    requirements: `${index}`,
    renderSimplified: () => ["simplified"],
    ...given,
  });
  const many = (count: number) => Array.from({ length: count }, (_, i) => suspect(i));
  const find = async (suspects: readonly Suspect[], probe: RuleProbe) =>
    (await findRejectedRules(suspects, probe)).map(({ suspect: { index }, level }) => ({ index, level }));

  test("no rule is returned if the kernel accepts all of them", async () => {
    const { probe, counts } = fakeProbe(() => false);
    expect(await find(many(100), probe)).toEqual([]);
    expect(counts).toEqual({ tests: 3, removals: 1 });
  });

  test("no rule is returned if the kernel does not even accept a harmless rule", async () => {
    const { probe, counts } = fakeProbe(() => true);
    expect(await find(many(100), probe)).toEqual([]);
    expect(counts).toEqual({ tests: 1, removals: 1 });
  });

  test("one rejected rule, and its closest accepted fallback, are found by bisection", async () => {
    const { probe, counts } = fakeProbe((rule) => rule === "rule 7");
    expect(await find(many(100), probe)).toEqual([{ index: 7, level: 0 }]);
    expect(counts.tests).toBeLessThan(25);
  });

  test("several rejected rules are found", async () => {
    const { probe } = fakeProbe((rule) => ["rule 7", "rule 8", "rule 99"].includes(rule));
    expect((await find(many(100), probe)).map(({ index }) => index)).toEqual([7, 8, 99]);
  });

  test("equal rules are tested once and all returned", async () => {
    const { probe } = fakeProbe((rule) => rule === "same");
    expect(await find([suspect(0, "same"), suspect(1), suspect(2, "same")], probe)).toEqual([
      { index: 0, level: 0 },
      { index: 2, level: 0 },
    ]);
  });

  test("if the closest fallback is rejected too, the next one is used, and finally the last one", async () => {
    const closest = fakeProbe((rule) => rule === "rule 3" || rule === "rule 3 closest");
    expect(await find(many(8), closest.probe)).toEqual([{ index: 3, level: 1 }]);
    const all = fakeProbe((rule) => rule.startsWith("rule 3"));
    expect(await find(many(8), all.probe)).toEqual([{ index: 3, level: 1 }]);
  });

  test("a rejected rule without fallbacks is not returned", async () => {
    const { probe } = fakeProbe((rule) => rule === "rule 3");
    expect(await find([suspect(3, "rule 3", { fallbackTexts: [] })], probe)).toEqual([]);
  });

  test("a rule that is rejected only in a hook is found by the second search", async () => {
    const { probe } = fakeProbe((rule, hooks) => rule === "rule 3" && hooks.includes("FORWARD"));
    expect(await find(many(8), probe)).toEqual([{ index: 3, level: 0 }]);
  });

  test("a rule that is rejected only once is not returned", async () => {
    let remaining = 4; // as often as bisection tests it
    const { probe } = fakeProbe((rule) => rule === "rule 3" && remaining-- > 0);
    expect(await find(many(8), probe)).toEqual([]);
  });

  test("above the limit, if the kernel lacks a feature, all rules that need it are assumed to be rejected", async () => {
    const suspects = Array.from({ length: 100 }, (_, i) =>
      suspect(i, `rule ${i}`, { requirements: i < 80 ? "a" : "b" }),
    );
    const { probe, counts } = fakeProbe(
      (rule) => rule === "simplified" || (Number(rule.slice(5)) < 80 && !rule.includes("closest")),
    );
    expect((await find(suspects, probe)).map(({ index }) => index)).toEqual(
      suspects.slice(0, 80).map(({ index }) => index),
    );
    expect(counts.tests).toBeLessThan(300);
  });

  test("above the limit, if only long rules are rejected, rules of other chains are not assumed to be rejected", async () => {
    const tenant = Array.from({ length: 60 }, (_, i) =>
      suspect(i, `long ${i}`, { chain: "tenant", requirements: "a" }),
    );
    const neighbour = suspect(60, "short", { chain: "neighbour", requirements: "a" });
    const { probe } = fakeProbe((rule) => /^long \d+$/.test(rule));
    const found = await findRejectedRules([...tenant, neighbour], probe);
    expect(found.map((each) => each.suspect.chain)).toEqual(tenant.map(({ chain: name }) => name));
  });
});
