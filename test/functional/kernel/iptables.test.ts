// Saves and restores tables with both iptables variants and both IP families.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Iptables, IptablesError, runTool } from "../../../src/kernel/index.ts";
import { TestNamespace } from "./test-namespace.ts";

let namespace: TestNamespace;
beforeAll(() => {
  namespace = new TestNamespace("iptables");
});
afterAll(() => namespace[Symbol.dispose]());

/** A child process inherits the namespace of the thread that starts it, so only its start must be inside. */
const inside = <T>(body: () => Promise<T>): Promise<T> => namespace.enter(body);

for (const variant of ["legacy", "nft"] as const)
  for (const family of [4, 6] as const)
    describe(`${variant} IPv${family}`, () => {
      const lock = { timeoutSeconds: 10, probeMs: 50 };
      const tables = new Iptables({ family, variant, lock });

      test("restored rules are saved, and rules of other programs are kept", async () => {
        await inside(() => tables.restore("*filter\n-A FORWARD -j ACCEPT\nCOMMIT\n"));
        await inside(() =>
          tables.restore(
            '*filter\n:cali-x - -\n-A cali-x -m comment --comment "cali:abc" -j DROP\n-I FORWARD -j cali-x\nCOMMIT\n',
          ),
        );
        const lines = (await inside(() => tables.save("filter"))).split("\n").filter((line) => line.startsWith("-A"));
        expect(lines).toEqual([
          "-A FORWARD -j cali-x",
          "-A FORWARD -j ACCEPT",
          '-A cali-x -m comment --comment "cali:abc" -j DROP',
        ]);
      });

      test("if a line is rejected, its table is not changed", async () => {
        const text = "*filter\n:cali-y - -\n-A cali-y -j cali-missing\nCOMMIT\n";
        const error = await inside(() => tables.restore(text)).catch((e: unknown) => e);
        expect(error).toBeInstanceOf(IptablesError);
        expect((error as IptablesError).exitCode).toBeGreaterThan(0);
        expect((error as IptablesError).command).toContain(variant);
        expect(await inside(() => tables.save("filter"))).not.toContain("cali-y");
      });
    });

test("a table that the nft variant cannot list is an error, not an empty table", async () => {
  namespace.run("nft", ["add", "table", "ip", "mangle"]);
  namespace.run("nft", ["add", "chain", "ip", "mangle", "FORWARD", "{ type filter hook forward priority -150; }"]);
  namespace.run("nft", ["add", "rule", "ip", "mangle", "FORWARD", "fib", "daddr", "type", "local", "drop"]);
  const tables = new Iptables({ family: 4, variant: "nft" });
  const error = await inside(() => tables.save("mangle")).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(IptablesError);
  expect((error as IptablesError).message).toContain("incompatible");
});

test("a tool that does not exit in time is killed", async () => {
  const error = await runTool("/bin/sleep", ["60"], "", 20).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(IptablesError);
  expect((error as IptablesError).exitCode).toBeUndefined();
});
