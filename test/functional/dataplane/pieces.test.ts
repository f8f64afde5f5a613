// Tests that large new tables are written in several transactions, with their hooks in the last one.
import { expect, test } from "bun:test";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import { NftError } from "../../../src/kernel/index.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";
import { watchWrites } from "./watch-writes.ts";

const POLICIES = 500;
const tcp = { name: "tcp" } as const;

/** Policy of b: the last of many policies allows tcp 80, and nothing else is allowed. */
async function arranged() {
  const host = await DataplaneHost.create("nftables");
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
  const names = Array.from({ length: POLICIES }, (_, i) => `p${i}`);
  const state: DataplaneMessage[] = [
    allowProfile,
    ...names.map((name, i) => {
      const first = i === POLICIES - 1 ? 80 : 1000 + i;
      return policy(name, [rule({ protocol: tcp, dstPorts: [{ first, last: first }] })], [rule({ protocol: tcp })]);
    }),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(names)] }),
    inSync,
  ];
  const passed = () => host.probe([80, 81].map((p) => ({ from: a.target, to: b.v4, port: p })));
  const held = () =>
    ["ip", "ip6"].flatMap((family) =>
      host.namespace
        .run("nft", ["-s", "list", "table", family, "calico"])
        .split(/\n(?=\t\w)/)
        .map((block) => block.replace(/\n}\s*$/, "").trimEnd())
        .sort(),
    );
  const hooks = () => host.namespace.run("nft", ["list", "ruleset"]).match(/type \w+ hook/g) ?? [];
  return { host, state, passed, held, hooks };
}

/** Starts the dataplane and stops it before its n-th write of rules. Returns the number of writes. */
async function startAndKill(host: DataplaneHost, state: readonly DataplaneMessage[], killAt: number): Promise<number> {
  let pieces = 0;
  let isKilled = false;
  host.wrapKernel = (kernel) =>
    watchWrites(kernel, (what) => {
      if (isKilled) throw new Error("killed");
      if (!what.includes("commit") || ++pieces !== killAt) return;
      isKilled = true;
      throw new Error("killed");
    });
  host.start();
  const done = host.send(...state).catch(() => {});
  await Promise.race([done, eventually(() => isKilled, 20_000)]);
  await host.stop().catch(() => {});
  return pieces;
}

test("killed before any of the transactions, no hook is written, and the next start completes the tables", async () => {
  const { host, state, passed, held, hooks } = await arranged();
  await using _ = host;
  const never = Number.POSITIVE_INFINITY;
  const pieces = await startAndKill(host, state, never);
  expect(pieces).toBeGreaterThan(2);
  const desired = held();
  expect(await passed()).toEqual(["reached", "silent"]);
  // A restart writes nothing.
  expect(await startAndKill(host, state, never)).toBe(0);
  for (let killAt = 1; killAt <= pieces; killAt++) {
    host.namespace.run("nft", ["flush", "ruleset"]);
    await startAndKill(host, state, killAt);
    expect(hooks()).toEqual([]);
    await startAndKill(host, state, never);
    expect(held()).toEqual(desired);
  }
  expect(await passed()).toEqual(["reached", "silent"]);
}, 120_000);

test("a rejected rule in one part of a split transaction is the only rule that is replaced", async () => {
  const { host, state, passed, held } = await arranged();
  await using _ = host;
  host.wrapKernel = (kernel) => {
    if (kernel.rules.backend !== "nftables") return kernel;
    const ruleset = new Proxy(kernel.rules.ruleset, {
      get: (of, name) => {
        const value: unknown = Reflect.get(of, name);
        if (name !== "commit" && name !== "commitOffThread")
          return typeof value === "function" ? value.bind(of) : value;
        return (...args: Parameters<typeof of.commitOffThread>) => {
          const rejected = args[0].filter(
            (change) =>
              change.op === "appendRule" &&
              change.chain.endsWith("pi-gnp/p7") &&
              change.rule.expressions.some(({ kind }) => kind === "lookup"),
          );
          if (rejected[0] === undefined) return Reflect.apply(value as typeof of.commitOffThread, of, args);
          const error = new NftError(rejected[0], "add rule", "EINVAL", {}, rejected);
          if (name === "commit") throw error;
          return Promise.resolve({ send: () => Promise.reject(error) });
        };
      },
    });
    return { ...kernel, rules: { ...kernel.rules, ruleset } };
  };
  host.start();
  await host.send(...state);
  expect(await passed()).toEqual(["reached", "silent"]);
  expect(
    held()
      .join("\n")
      .match(/refused by the kernel/g),
  ).toHaveLength(2);
  expect(host.lines.filter((line) => line.startsWith("error kernel rejected a rule"))).toHaveLength(2);
}, 60_000);
