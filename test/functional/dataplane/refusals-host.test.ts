// What a refused rule closes in the chains that all of the host's packets walk: no more than it must, and never the
// host's own access.
import { describe, expect, test } from "bun:test";
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { LateRule } from "../../../src/dataplane/nft/prepared-chain.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip.ts";
import { allowProfile, BACKENDS, DataplaneHost, hostEndpoint, inSync, policy, rule, tier } from "./host.ts";
import { hasExpression, refusing, refusingText, withRuleset } from "./refusing.ts";

const HOST = "192.0.2.10" as IpAddress;
const OUTSIDE = "192.0.2.99" as IpAddress;
const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });
/** Policy for every interface of the host: 80 from outside and everything outward. */
const everywhere = [
  policy("in", [rule({ protocol: tcp, dstPorts: [port(80)] }), rule({ protocol: { name: "icmpv6" } })]),
  policy("out", [], [rule()]),
  hostEndpoint("*", { tiers: [tier(["in"], ["out"])] }),
] as const;

async function world(backend: (typeof BACKENDS)[number], wrap: (kernel: LinuxKernel) => LinuxKernel) {
  const host = await DataplaneHost.create(backend, {
    IptablesFilterAllowAction: "RETURN",
    NftablesFilterAllowAction: "RETURN",
  });
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const p of [22, 80, 81]) host.prober.listen(host.hostTarget, "tcp", p);
  for (const p of [4789, 68]) host.prober.listen(host.hostTarget, "udp", p);
  host.prober.listen(host.outside, "tcp", 80);
  for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
  host.wrapKernel = wrap;
  const opened = async () =>
    host.probe([
      { from: host.outside, to: HOST, port: 22 }, // a failsafe port
      { from: host.outside, to: HOST, port: 80 },
      { from: host.outside, to: HOST, port: 81 },
      { from: host.hostTarget, to: OUTSIDE, port: 80 },
      { from: a.target, to: b.v4, port: 80 },
      { from: a.target, to: b.v4, port: 81 },
    ]);
  const messages = [
    allowProfile,
    policy("p", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
    host.endpoint(a, { qosPolicies: [{ destination: "", dscp: 10 }] }),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    ...everywhere,
    inSync,
  ] as const;
  return {
    host,
    messages,
    opened,
    said: () => host.lines.filter((line) => line.startsWith("error the kernel refuses")),
  };
}
const AS_POLICY_SAYS = ["reached", "reached", "silent", "reached", "reached", "silent"] as const;

for (const backend of BACKENDS)
  describe(backend, () => {
    test("a DSCP jump that is refused is left out, and everything else is as it should be", async () => {
      const { host, messages, opened, said } = await world(backend, (kernel) =>
        kernel.rules.backend === "nftables"
          ? withRuleset(kernel, (ruleset) =>
              refusing(
                ruleset,
                (change) =>
                  change instanceof LateRule &&
                  change.tree.action?.kind === "jump" &&
                  change.tree.action.chain === "cali-egress-dscp",
              ),
            )
          : refusingText(kernel, /--match-set cali\d0dscp-src-net/),
      );
      await using _ = host;
      host.start();
      await host.send(...messages);
      expect(await opened()).toEqual([...AS_POLICY_SAYS]);
      expect(said().length).toBeGreaterThan(0);
      for (const line of said()) expect(line).toContain("it is left out");
    }, 60_000);

    test("without a way to ask for local addresses VXLAN is closed, and neither the host nor its workloads", async () => {
      const { host, messages, opened, said } = await world(backend, (kernel) =>
        kernel.rules.backend === "nftables"
          ? withRuleset(kernel, (ruleset) =>
              refusing(
                ruleset,
                (change) =>
                  hasExpression(change, "fib") &&
                  change instanceof LateRule &&
                  change.tree.match?.some(({ kind }) => kind === "localAddress") === true,
              ),
            )
          : refusingText(kernel, "-m addrtype"),
      );
      await using _ = host;
      host.start(undefined, backend, { vxlanEnabled: true });
      await host.send(...messages);
      expect(await opened()).toEqual([...AS_POLICY_SAYS]);
      const udp = (p: number) => ({ from: host.outside, to: HOST, port: p, protocol: "udp" as const });
      // 68 is a failsafe port of the host.
      expect(await host.probe([udp(68), udp(4789)])).toEqual(["reached", "silent"]);
      const closed = said().filter((line) => line.includes("are dropped"));
      expect(closed).toHaveLength(1);
      expect(closed[0]).toContain("the same protocol, ports are dropped");
    }, 60_000);

    test("a deny of a policy that is refused for its ICMP type closes its protocol and prefix only", async () => {
      const { host, messages, opened } = await world(backend, (kernel) =>
        kernel.rules.backend === "nftables"
          ? withRuleset(kernel, (ruleset) =>
              refusing(
                ruleset,
                (change) =>
                  change instanceof LateRule && change.tree.match?.some(({ kind }) => kind === "icmp") === true,
              ),
            )
          : refusingText(kernel, "--icmp-type"),
      );
      await using _ = host;
      host.start();
      const icmp = rule({
        action: "deny",
        protocol: { name: "icmp" },
        icmp: { type: 8 },
        srcNet: ["10.65.0.0/16" as Cidr],
      });
      const allowed = rule({ protocol: tcp, dstPorts: [port(80)] });
      await host.send(...messages, policy("p", [icmp, allowed]));
      expect(await opened()).toEqual([...AS_POLICY_SAYS]);
    }, 60_000);
  });
