import { expect, test } from "bun:test";
import type { IptablesStore } from "../../kernel/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { chain, drop, jump, type Rule } from "../rules/rule.ts";
import { ForeignWrites } from "./foreign-writes.ts";
import { IptablesTable } from "./iptables-table.ts";
import { RecheckTimer } from "./recheck-timer.ts";
import { parseSave } from "./save-text.ts";
import { ALL_FEATURES } from "./rule-text.ts";

/** An in-memory table: `save` returns what `restore` wrote. */
class MemoryTable implements IptablesStore {
  readonly family = 4;
  readonly chains = new Map<string, string[]>([
    ["FORWARD", []],
    ["INPUT", []],
    ["OUTPUT", []],
  ]);
  readonly restored: string[] = [];
  saves = 0;
  remainingFailures = 0;
  constructor(readonly variant: "legacy" | "nft" = "legacy") {}

  async save(): Promise<string> {
    this.saves++;
    const lines = ["*filter"];
    for (const name of this.chains.keys()) lines.push(`:${name} - [0:0]`);
    for (const [name, rules] of this.chains) for (const rule of rules) lines.push(`-A ${name} ${rule}`);
    return `${lines.join("\n")}\nCOMMIT\n`;
  }

  async restore(text: string): Promise<void> {
    this.restored.push(text);
    if (this.remainingFailures > 0) {
      this.remainingFailures--;
      throw new Error("refused");
    }
    for (const line of text.split("\n")) {
      const declared = /^:(\S+) /.exec(line)?.[1];
      if (declared !== undefined) this.chains.set(declared, []);
      const [, verb, name = "", rest = ""] = /^-([AIRD]) (\S+) (.*)$/.exec(line) ?? [];
      const rules = this.chains.get(name) ?? [];
      if (verb === "A") rules.push(rest);
      else if (verb === "I") rules.unshift(rest);
      else if (verb === "R") {
        const [, at = "1", rule = ""] = /^(\d+) (.*)$/.exec(rest) ?? [];
        rules[Number(at) - 1] = rule;
      } else if (verb === "D") {
        if (/^\d+$/.test(rest)) rules.splice(Number(rest) - 1, 1);
        else if (rules.includes(rest)) rules.splice(rules.indexOf(rest), 1);
        else throw new Error(`no rule ${rest}`);
      }
      const gone = /^--delete-chain (\S+)$/.exec(line)?.[1];
      if (gone !== undefined) this.chains.delete(gone);
    }
  }
}

function open(store: MemoryTable, insertMode: "insert" | "append" = "insert", foreign?: ForeignWrites) {
  const table = new IptablesTable({
    tableName: "filter",
    store,
    context: { config: {} as never, version: 4, tableName: "filter", features: ALL_FEATURES },
    insertMode,
    logger: silentLogger,
    postWriteMs: 5000,
    refreshMs: 0,
    foreign,
  });
  return { table, apply: () => table.apply(new AbortController().signal) };
}
const rules = (...sources: string[]): Rule[] =>
  sources.map((source) => ({ match: [{ kind: "address", side: "source", address: source as never }], action: drop }));
const bare = (store: MemoryTable, name: string) =>
  store.chains.get(name)?.map((rule) => rule.replace(/-m comment --comment "cali:[\w-]+" ?/, ""));

test("FD-028 the first round removes surplus owned chains and old hooks, and keeps rules of other programs", async () => {
  const store = new MemoryTable();
  store.chains.set("cali-old", []);
  store.chains.set("felix-FORWARD", []);
  store.chains.set("DOCKER", ["-j RETURN"]);
  store.chains.get("FORWARD")?.push("-j felix-FORWARD", "-j DOCKER");
  const { table, apply } = open(store);
  table.setChain(chain("cali-FORWARD", rules("10.0.0.1")));
  table.setHook("FORWARD", "insert", [{ action: jump("cali-FORWARD") }]);
  await apply();
  expect([...store.chains.keys()].sort()).toEqual(["DOCKER", "FORWARD", "INPUT", "OUTPUT", "cali-FORWARD"]);
  expect(bare(store, "FORWARD")).toEqual(["--jump cali-FORWARD", "-j DOCKER"]);
});

test("FD-022 FD-025 an unused chain is not written, and no process is started if nothing changed", async () => {
  const store = new MemoryTable();
  const { table, apply } = open(store);
  table.setChain(chain("cali-unused", rules("10.0.0.1")));
  await apply();
  expect(store.restored).toEqual([]);
  await apply();
  expect([store.restored.length, store.saves]).toEqual([0, 1]);
});

test("FD-025 a table is read again and restored only if another program has written to it", async () => {
  const store = new MemoryTable("nft");
  let foreignWrites = 0;
  const foreign = new ForeignWrites(() => store.restored.length + foreignWrites);
  const { table, apply } = open(store, "insert", foreign);
  table.setHook("FORWARD", "insert", [{ action: jump("cali-x") }, { action: jump("cali-y") }]);
  table.setChain(chain("cali-x", rules("1.1.1.1")));
  table.setChain(chain("cali-y", rules("1.1.1.1")));
  await apply();
  table.setChain(chain("cali-x", rules("2.2.2.2")));
  await apply(); // the table is read again after hooks were written
  const { saves } = store;
  table.setChain(chain("cali-x", rules("3.3.3.3")));
  await apply();
  table.setChain(chain("cali-x", rules("4.4.4.4")));
  await apply();
  expect(store.saves).toBe(saves);
  expect(bare(store, "cali-x")?.[0]).toContain("4.4.4.4");
  expect(store.restored.at(-1)).not.toContain("cali-y"); // only what changed is written

  store.chains.set("cali-y", []);
  foreignWrites++;
  table.setChain(chain("cali-x", rules("5.5.5.5")));
  await apply();
  expect(store.saves).toBe(saves + 1);
  expect(bare(store, "cali-y")?.[0]).toContain("1.1.1.1");

  table.setHook("FORWARD", "insert", [{ action: jump("cali-x") }]);
  await apply();
  expect(store.chains.has("cali-y")).toBe(false);
});

test("FD-026 with legacy iptables, single rules are changed", async () => {
  const store = new MemoryTable();
  const { table, apply } = open(store);
  table.setHook("FORWARD", "insert", [{ action: jump("cali-x") }]);
  table.setChain(chain("cali-x", rules("1.1.1.1", "2.2.2.2", "3.3.3.3")));
  await apply();
  table.setChain(chain("cali-x", rules("1.1.1.1", "4.4.4.4")));
  await apply();
  const lines = store.restored.at(-1)?.split("\n") ?? [];
  expect(lines.filter((line) => line.startsWith("-")).map((line) => line.slice(0, 13))).toEqual([
    "-R cali-x 2 -",
    "-D cali-x 3",
  ]);
  expect(bare(store, "cali-x")).toEqual(["--source 1.1.1.1 --jump DROP", "--source 4.4.4.4 --jump DROP"]);
});

test("FD-027 with iptables-nft, changed chains are rewritten, and chains are deleted in a second transaction", async () => {
  const store = new MemoryTable("nft");
  const { table, apply } = open(store);
  table.setHook("FORWARD", "insert", [{ action: jump("cali-x") }]);
  table.setChain(chain("cali-x", [...rules("1.1.1.1"), { action: jump("cali-y") }]));
  table.setChain(chain("cali-y", rules("2.2.2.2")));
  await apply();
  table.setChain(chain("cali-x", rules("1.1.1.1")));
  await apply();
  const [change, deletion] = store.restored.slice(-2);
  expect(change).toContain(":cali-x - -");
  expect(deletion).toBe("*filter\n--delete-chain cali-y\nCOMMIT\n");
});

test("FD-024 hook rules are first or last depending on the mode, and appended ones are always last", async () => {
  for (const mode of ["insert", "append"] as const) {
    const store = new MemoryTable();
    store.chains.get("FORWARD")?.push("-j ACCEPT");
    const { table, apply } = open(store, mode);
    table.setChain(chain("cali-FORWARD", []));
    table.setHook("FORWARD", "insert", [{ action: jump("cali-FORWARD") }]);
    table.setHook("FORWARD", "append", [{ action: drop }]);
    await apply();
    const [foreign, ours, last] = ["-j ACCEPT", "--jump cali-FORWARD", "--jump DROP"];
    expect(bare(store, "FORWARD")).toEqual(mode === "insert" ? [ours!, foreign!, last!] : [foreign!, ours!, last!]);
  }
});

test("FD-025 a removed or moved hook rule is restored, and rules of other programs stay", async () => {
  const store = new MemoryTable();
  const { table, apply } = open(store);
  table.setChain(chain("cali-FORWARD", []));
  table.setHook("FORWARD", "insert", [{ action: jump("cali-FORWARD") }]);
  await apply();
  store.chains.get("FORWARD")?.splice(0, 1, "-j KUBE-FORWARD", "-j DOCKER");
  table.queueResync();
  await apply();
  expect(bare(store, "FORWARD")).toEqual(["--jump cali-FORWARD", "-j KUBE-FORWARD", "-j DOCKER"]);
});

test("FD-007 a failed write is tried ten times, then the error is fatal", async () => {
  const store = new MemoryTable();
  const { table, apply } = open(store);
  table.setChain(chain("cali-x", rules("1.1.1.1")));
  table.setHook("FORWARD", "insert", [{ action: jump("cali-x") }]);
  store.remainingFailures = 3;
  await apply();
  expect(store.restored).toHaveLength(4);
  table.setChain(chain("cali-x", rules("2.2.2.2")));
  store.remainingFailures = 100;
  await expect(apply()).rejects.toThrow("cannot be programmed");
  expect(store.restored).toHaveLength(14);
});

test("FD-029 FD-030 the interval after a write doubles, and is at least twice the duration of a read and a write", () => {
  let now = 0;
  const timer = new RecheckTimer({ postWriteMs: 5000, refreshMs: 0, now: () => now });
  timer.wrote(10);
  const waits: (number | undefined)[] = [];
  for (let i = 0; i < 3; i++) {
    waits.push(timer.dueInMs());
    now += timer.dueInMs() ?? 0;
    timer.read(1);
  }
  expect(waits).toEqual([5000, 10_000, 20_000]);
  timer.read(4000);
  timer.wrote(2000);
  expect(timer.dueInMs()).toBe(12_000);
});

test("FD-028 parseSave returns chains, hashes, and owned rules without a hash", () => {
  const saved = parseSave(
    '*nat\n:POSTROUTING ACCEPT [0:0]\n:cali-x - [0:0]\n-A POSTROUTING -m comment --comment "cali:abcdefghijklmnop" -j cali-x\n-A POSTROUTING -j felix-POSTROUTING\n-A POSTROUTING -m set --match-set felix-masq-ipam-pools src -j MASQUERADE\n-A POSTROUTING -j OTHER\nCOMMIT\n',
    / felix-masq-ipam-pools /,
  );
  expect(saved.get("POSTROUTING")?.map(({ hash, isOwned }) => [hash, isOwned])).toEqual([
    ["abcdefghijklmnop", true],
    [undefined, true],
    [undefined, true],
    [undefined, false],
  ]);
  expect(saved.get("cali-x")).toEqual([]);
});
