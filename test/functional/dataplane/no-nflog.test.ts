// Tests flow logs on a kernel without NFLOG: policy is enforced as usual, and one log line reports the missing feature.
import { describe, expect, test } from "bun:test";
import { findNflogError } from "../../../src/dataplane/host/nflog-support.ts";
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";
import { hasExpression, rejecting, rejectingText, withRuleset } from "./rejecting-kernel.ts";

const SETTINGS = { FlowLogsLocalReporter: "Enabled" };
const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });
/** More than the number of different rules that bisection finds. */
const MANY = 60;

const withoutNflog = (kernel: LinuxKernel): LinuxKernel =>
  kernel.rules.backend === "nftables"
    ? withRuleset(kernel, (ruleset) => rejecting(ruleset, (change) => hasExpression(change, "nflog")))
    : rejectingText(kernel, "--jump NFLOG");

for (const backend of BACKENDS)
  describe(backend, () => {
    async function world() {
      const host = await DataplaneHost.create(backend, SETTINGS);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      for (const p of [80, 81, 1001]) host.prober.listen(b.target, "tcp", p);
      const rules = Array.from({ length: MANY }, (_, i) =>
        rule({ protocol: tcp, dstPorts: [port(1000 + i)], action: i % 2 === 0 ? "deny" : "allow" }),
      );
      const messages = [
        allowProfile,
        policy("p", [...rules, rule({ protocol: tcp, dstPorts: [port(80)] })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["p"])] }),
        inSync,
      ] as const;
      const probe = () => host.probe([80, 81, 1001].map((p) => ({ from: a.target, to: b.v4, port: p })));
      return { host, messages, probe };
    }

    test("the probe detects whether the kernel has NFLOG, and leaves no rules", async () => {
      await using host = await DataplaneHost.create(backend, SETTINGS);
      let kernel: LinuxKernel | undefined;
      host.wrapKernel = (opened) => (kernel = opened);
      host.start();
      await host.send(inSync);
      const listed = () =>
        backend === "nftables"
          ? host.namespace.run("nft", ["list", "tables"])
          : host.namespace.run(`iptables-${backend}-save`, []).replace(/\[\d+:\d+\]|^#.*/gm, "");
      const before = listed();
      expect(await findNflogError(kernel!.rules, [4, 6])).toBeUndefined(); // the flow log tests also need NFLOG
      expect(await findNflogError(withoutNflog(kernel!).rules, [4])).toMatch(/No such file|ENOENT/);
      expect(listed()).toBe(before);
    }, 60_000);

    test("detected at startup: rules are programmed without NFLOG, and one log line contains the fix", async () => {
      const { host, messages, probe } = await world();
      await using _ = host;
      host.wrapKernel = (kernel) => ({ ...withoutNflog(kernel), nflogError: "ENOENT" });
      const dataplane = host.start();
      await host.send(...messages);
      expect(await probe()).toEqual(["reached", "silent", "reached"]);
      const said = host.lines.filter((line) => /flow logs|NFLOG/i.test(line) && !line.startsWith("debug"));
      expect(said).toHaveLength(1);
      expect(said[0]).toContain("load the modules");
      expect(said[0]).toContain("unset FlowLogsGoldmaneServer");
      expect(dataplane.rejected().map(({ where }) => where)).toEqual(["flow logs"]);
    }, 60_000);

    test("not detected at startup: any number of rules are enforced without NFLOG", async () => {
      const { host, messages, probe } = await world();
      await using _ = host;
      host.wrapKernel = withoutNflog;
      const dataplane = host.start();
      await host.send(...messages);
      expect(await probe()).toEqual(["reached", "silent", "reached"]);
      const rejected = dataplane.rejected();
      expect(rejected.length).toBeGreaterThan(MANY);
      expect(rejected.filter(({ instead }) => instead.includes("dropped"))).toEqual([]);
      const stands = host.ruleCounters().filter(({ text }) => text.includes("Not recorded"));
      expect(stands.length).toBeGreaterThan(MANY);
      // A later change is programmed immediately and denies as intended.
      await host.send(policy("p", [rule({ protocol: tcp, dstPorts: [port(81)] })]));
      expect(await probe()).toEqual(["silent", "reached", "silent"]);
    }, 60_000);
  });
