import { expect, test } from "bun:test";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { detectFeatures, detectIptablesVariant, type IptablesProbe } from "./detect.ts";

function probe(saved: Readonly<Record<string, string>>, legacyModules = true) {
  const asked: string[] = [];
  const subject: IptablesProbe = {
    save: async (variant, version, table) => {
      asked.push(`${variant} ${version}`);
      return saved[`${variant} ${version} ${table ?? "all"}`] ?? saved[`${variant} ${version}`] ?? "";
    },
    hasLegacyModules: () => legacyModules,
  };
  return { subject, asked };
}
const both: readonly IpVersion[] = [4, 6];

test("FD-032 the chains of the kubelet decide, nft before legacy", async () => {
  const hint = ":KUBE-IPTABLES-HINT - [0:0]\n";
  const canary = ":KUBE-KUBELET-CANARY - [0:0]\n";
  expect(
    (await detectIptablesVariant(probe({ "nft 6 mangle": hint, "legacy 4": "-A x\n" }).subject, both)).variant,
  ).toBe("nft");
  expect((await detectIptablesVariant(probe({ "legacy 4 mangle": canary }).subject, both)).variant).toBe("legacy");
  expect(
    (await detectIptablesVariant(probe({ "legacy 4 mangle": hint, "nft 4 mangle": canary }).subject, both)).variant,
  ).toBe("nft");
});

test("FD-032 without such chains, the variant with more rules is used, or legacy if equal", async () => {
  const rules = (n: number) => "-A INPUT -j ACCEPT\n".repeat(n);
  const variant = async (legacy: number, nft: number) =>
    (await detectIptablesVariant(probe({ "legacy 4 all": rules(legacy), "nft 6 all": rules(nft) }).subject, both))
      .variant;
  expect(await variant(3, 2)).toBe("legacy");
  expect(await variant(2, 3)).toBe("nft");
  expect(await variant(0, 0)).toBe("legacy");
});

test("FD-033 the legacy tool is not run if its modules are not loaded", async () => {
  const { subject, asked } = probe({ "nft 4 all": "-A x\n" }, false);
  expect((await detectIptablesVariant(subject, both)).variant).toBe("nft");
  expect(asked.some((question) => question.startsWith("legacy"))).toBe(false);
});

const features = [
  {
    iptables: "iptables v1.8.9 (nf_tables)",
    kernel: "6.1.0-18-amd64",
    snat: true,
    masq: true,
    wait: true,
    nflog: true,
  },
  { iptables: "iptables v1.6.0", kernel: "4.7.0", snat: true, masq: false, wait: false, nflog: false },
  { iptables: "iptables v1.8.4", kernel: "3.13.0", snat: false, masq: false, wait: true, nflog: false },
  { iptables: "what?", kernel: "what?", snat: false, masq: false, wait: false, nflog: false },
];
for (const { iptables, kernel, snat, masq, wait, nflog } of features)
  test(`FD-034 ${iptables} on ${kernel}`, () => {
    const found = detectFeatures({ iptablesVersion: iptables, kernelVersion: kernel });
    expect([found.snatRandomFully, found.masqueradeRandomFully, found.restoreWait, found.nflogSize]).toEqual([
      snat,
      masq,
      wait,
      nflog,
    ]);
  });

test("FD-034 the configuration overrides detection", () => {
  const override = new Map([
    ["MASQFullyRandom", "false"],
    ["NFLogSize", "True"],
  ]);
  const found = detectFeatures({ iptablesVersion: "iptables v1.8.9", kernelVersion: "4.1.0", override });
  expect([found.masqueradeRandomFully, found.nflogSize]).toEqual([false, true]);
});

test("FD-147 FD-140 old kernels compute wrong checksums on tunnels; new ones have IPIP devices without link headers", () => {
  const of = (kernelVersion: string) => detectFeatures({ iptablesVersion: "iptables v1.8.9", kernelVersion });
  expect(of("5.7.19").checksumOffloadBroken).toBe(true);
  expect(of("5.8.0").checksumOffloadBroken).toBe(false);
  expect(of("5.13.0").ipipIsLayer3).toBe(false);
  expect(of("5.14.0").ipipIsLayer3).toBe(true);
  expect(of("4.18.0-348.el8").ipipIsLayer3).toBe(true);
});
