// Tests transient errors: a kernel that is out of memory, a killed tool, a lock that another program holds. The write is
// retried, no rule is replaced by a fallback, and the old rules stay in force meanwhile.
import { describe, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { LazyRule } from "../../../src/dataplane/nft/prepared-chain.ts";
import { IptablesError, type NftChange, NftError } from "../../../src/kernel/index.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";
import { withRuleset } from "./rejecting-kernel.ts";

const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });

/** Makes the next writes fail. */
class FailingWrites {
  remaining = 0;

  fail(error: () => Error): void {
    if (this.remaining > 0 && this.remaining-- > 0) throw error();
  }

  in(kernel: LinuxKernel, iptablesError: () => IptablesError): LinuxKernel {
    if (kernel.rules.backend === "iptables") {
      const { iptables } = kernel.rules;
      const store: typeof iptables = (version) => {
        const real = iptables(version);
        const restore: typeof real.restore = async (text, signal) => {
          this.fail(iptablesError);
          return real.restore(text, signal);
        };
        return { ...real, restore };
      };
      return { ...kernel, rules: { ...kernel.rules, iptables: store } };
    }
    return withRuleset(
      kernel,
      (ruleset) =>
        new Proxy(ruleset, {
          get: (of, name) => {
            const value: unknown = Reflect.get(of, name);
            if (name !== "commit" && name !== "dryRun") return typeof value === "function" ? value.bind(of) : value;
            return (changes: readonly NftChange[], ...rest: unknown[]) => {
              const rules = changes.filter((change) => change instanceof LazyRule);
              this.fail(() => new NftError(rules[0], "add rule", "ENOMEM", {}, rules));
              return Reflect.apply(value as (...args: unknown[]) => void, of, [changes, ...rest]);
            };
          },
        }),
    );
  }
}

async function world(backend: (typeof BACKENDS)[number]) {
  const host = await DataplaneHost.create(backend);
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const p of [80, 81, 82]) host.prober.listen(b.target, "tcp", p);
  const state = (open: number) =>
    [
      policy("p", [
        rule({ action: "deny", protocol: tcp, dstPorts: [port(81)] }),
        rule({ protocol: tcp, dstPorts: [port(open)] }),
      ]),
      host.endpoint(b, { tiers: [tier(["p"])] }),
    ] as const;
  const probe = () => host.probe([80, 81, 82].map((p) => ({ from: a.target, to: b.v4, port: p })));
  const begin = () => host.send(allowProfile, host.endpoint(a), ...state(80), inSync);
  return { host, state, probe, begin };
}

const REASONS = [
  {
    name: "memory",
    error: () => new IptablesError("iptables-restore", 1, "iptables-restore: Memory allocation problem."),
  },
  { name: "a killed tool", error: () => new IptablesError("iptables-restore", undefined, "") },
  {
    name: "the lock",
    error: () => new IptablesError("iptables-restore", 4, "Another app is currently holding the xtables lock."),
  },
] as const;

for (const backend of BACKENDS)
  describe(backend, () => {
    for (const { name, error } of backend === "nftables" ? REASONS.slice(0, 1) : REASONS)
      test(`${name}: after five failed writes everything is programmed, without fallbacks`, async () => {
        const { host, state, probe, begin } = await world(backend);
        await using _ = host;
        const failing = new FailingWrites();
        host.wrapKernel = (kernel) => failing.in(kernel, error);
        const dataplane = host.start();
        await begin();
        failing.remaining = 5;
        await host.send(...state(82));
        expect(failing.remaining).toBe(0);
        expect(await probe()).toEqual(["silent", "silent", "reached"]);
        expect(dataplane.rejected()).toEqual([]);
        expect(host.lines.join("\n")).not.toContain("kernel rejected");
        expect(host.lines.filter((line) => line.includes("retrying")).length).toBeGreaterThan(2);
      }, 60_000);
  });

test("legacy: if the xtables lock is held for longer than a write waits, the old rules stay in force, then the new ones", async () => {
  const { host, state, probe, begin } = await world("legacy");
  await using _ = host;
  const dataplane = host.start();
  await begin();
  const holder = spawn("flock", ["/run/xtables.lock", "sh", "-c", "echo held; exec sleep 11.5"], { stdio: "pipe" });
  try {
    await new Promise((resolve) => holder.stdout.once("data", resolve));
    const started = performance.now();
    DataplaneHost.patienceMs = 40_000;
    const sent = host.send(...state(82));
    expect(await probe()).toEqual(["reached", "silent", "silent"]);
    await sent;
    expect(performance.now() - started).toBeGreaterThan(10_000); // the first write timed out
    expect(await probe()).toEqual(["silent", "silent", "reached"]);
    expect(dataplane.rejected()).toEqual([]);
    expect(host.lines.join("\n")).toMatch(/retrying.*xtables lock/);
  } finally {
    DataplaneHost.patienceMs = 20_000;
    holder.kill();
  }
}, 60_000);
