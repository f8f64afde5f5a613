// Tests a host after power-on: the CNI plugin attaches pods before Felix has written its rules. If the host has an agent of
// calico-ts, the pods' packets are dropped until Felix has written its rules. On other hosts the plugin changes nothing.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CallOptions, canRun, CniHost, type Pod } from "./cni-host.ts";
import { openProber } from "./reach.ts";
import { runFelix } from "./run-felix.ts";

const AGENT = { nodename_file_optional: false };
const BACKENDS = {
  nftables: { FELIX_NFTABLESMODE: "Enabled" },
  legacy: { FELIX_NFTABLESMODE: "Disabled", FELIX_IPTABLESBACKEND: "Legacy" },
  nft: { FELIX_NFTABLESMODE: "Disabled", FELIX_IPTABLESBACKEND: "NFT" },
};

const GUARD = ["list", "table", "inet", "calico-guard"];

/** Runs a command on the host. Returns its output, or undefined if it failed. */
function run(host: CniHost, command: string, ...args: readonly string[]): string | undefined {
  try {
    return host.handle.run(() => execFileSync(command, args, { encoding: "utf8", stdio: "pipe" }));
  } catch {
    return undefined;
  }
}

const guardOf = (host: CniHost): "absent" | "closed" | "open" => {
  const listed = run(host, "nft", ...GUARD);
  return listed === undefined ? "absent" : listed.includes("cali:closed;") ? "closed" : "open";
};

/** Simulates a reboot: the files that Felix has written exist, and the kernel has no rules. */
async function powerOn(host: CniHost, env: Readonly<Record<string, string>>): Promise<void> {
  const stop = await runFelix(host, env);
  await stop();
  rmSync(join(host.folder, "run"), { recursive: true }); // a tmpfs
  run(host, "nft", "flush", "ruleset");
  for (const tool of ["iptables-legacy", "ip6tables-legacy"])
    for (const table of ["raw", "mangle", "nat", "filter"])
      for (const flag of ["-F", "-X"]) run(host, tool, "-t", table, flag);
}

function writeNodename(host: CniHost): void {
  mkdirSync(join(host.folder, "lib"), { recursive: true });
  writeFileSync(join(host.folder, "lib/nodename"), "n1");
}

const removeGuardFile = (host: CniHost) => rmSync(join(host.folder, "lib/guard"));

async function attach(host: CniHost, options: CallOptions = { conf: AGENT }) {
  const pods = [host.pod(), host.pod()];
  for (const pod of pods) expect(await host.add(pod, options)).toMatchObject({ code: 0 });
  const [a, b] = pods as [Pod, Pod];
  const addresses = b.kernel.addresses
    .list({ link: b.kernel.links.get("eth0")?.index ?? 0 })
    .map(({ address }) => address)
    .filter((address) => !address.startsWith("fe80"));
  return { a, b, addresses };
}

const DUAL = { ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } };

describe.skipIf(!canRun)("ADD on a host with an agent of calico-ts", () => {
  for (const [name, env] of Object.entries(BACKENDS))
    test(`${name}: drops all packets of the pods until Felix has written its rules`, async () => {
      await using host = await CniHost.create();
      writeNodename(host);
      await powerOn(host, env);
      const { a, b, addresses } = await attach(host, { conf: { ...AGENT, ...DUAL } });
      expect(addresses.length).toBe(2);
      using prober = openProber([a, b]);
      const reached = async () => (await prober.reach(a, b, addresses)).filter((each) => each.endsWith(" reached"));
      expect(await reached()).toEqual([]);
      expect(run(host, "ping", "-c", "1", "-W", "1", addresses[0] ?? "")).toBeUndefined();
      expect(guardOf(host)).toBe("closed");

      const stop = await runFelix(host, env);
      expect(guardOf(host)).toBe("open");
      await eventually(async () => (await reached()).length === 2, 10_000, "pods reach each other");
      await stop();
      const later = host.pod();
      expect(await host.add(later, { conf: { ...AGENT, policy_setup_timeout_seconds: 0 } })).toMatchObject({ code: 0 });
      expect(guardOf(host)).toBe("open");
    }, 120_000);

  for (const [name, env] of Object.entries(BACKENDS))
    test(`${name}: no packet passes while Felix replaces the closed table by rules that deny`, async () => {
      await using host = await CniHost.create();
      writeNodename(host);
      await powerOn(host, env);
      await host.put("GlobalNetworkPolicy", "default.deny", { selector: "all()", types: ["Ingress", "Egress"] });
      const { a, b, addresses } = await attach(host, { conf: { ...AGENT, ...DUAL } });
      expect(guardOf(host)).toBe("closed");
      const counter =
        "chain c { type filter hook input priority 0;\n icmp type echo-request counter\n icmpv6 type echo-request counter\n }";
      b.handle.run(() => execFileSync("nft", [`table inet count { ${counter}\n }`]));
      const pings = addresses.map((address) =>
        a.handle.run(() => spawn("ping", ["-q", "-i", "0.002", address], { stdio: "ignore" }) as ChildProcess),
      );
      using _ = { [Symbol.dispose]: () => pings.forEach((ping) => ping.kill("SIGKILL")) };
      await runFelix(host, env);
      expect(guardOf(host)).toBe("open");
      const arrived = b.handle.run(() => execFileSync("nft", ["list", "table", "inet", "count"], { encoding: "utf8" }));
      expect([...arrived.matchAll(/counter packets (\d+)/g)].map(([, count]) => count)).toEqual(["0", "0"]);
      expect(pings.map(({ exitCode }) => exitCode)).toEqual([null, null]); // they still run
    }, 120_000);

  test("removes the guard table if another agent has started since", async () => {
    await using host = await CniHost.create();
    writeNodename(host);
    await powerOn(host, BACKENDS.nftables);
    await attach(host);
    expect(guardOf(host)).toBe("closed");
    const future = Date.now() / 1000 + 60;
    utimesSync(join(host.folder, "lib/nodename"), future, future); // as Calico's agent does when it starts
    const { a, b, addresses } = await attach(host);
    expect(guardOf(host)).toBe("absent");
    using prober = openProber([a, b]);
    expect(await prober.reach(a, b, addresses)).toEqual([`${addresses[0]} reached`]);
  }, 60_000);
});

describe.skipIf(!canRun)("ADD changes no rules", () => {
  const AGENT_RULES = "table ip calico { chain filter-FORWARD { type filter hook forward priority 0;\n }\n }";
  const cases: {
    readonly name: string;
    readonly conf?: Record<string, unknown>;
    readonly prepare: (host: CniHost) => void;
  }[] = [
    { name: "on a host without a guard file, such as one with Calico's agent", prepare: removeGuardFile },
    {
      name: "if an agent without a guard table has started since the guard file was written",
      prepare: (host) => {
        const past = Date.now() / 1000 - 60;
        utimesSync(join(host.folder, "lib/guard"), past, past);
      },
    },
    { name: "on a host without an agent", conf: { nodename_file_optional: true }, prepare: () => {} },
    {
      name: "if rules of an agent are in the kernel",
      prepare: (host) => expect(run(host, "nft", AGENT_RULES)).toBe(""),
    },
  ];
  for (const { name, conf = AGENT, prepare } of cases)
    test(name, async () => {
      await using host = await CniHost.create();
      writeNodename(host);
      await powerOn(host, BACKENDS.nftables);
      prepare(host);
      const before = run(host, "nft", "list", "ruleset");
      const { a, b, addresses } = await attach(host, { conf });
      expect(run(host, "nft", "list", "ruleset")).toBe(before);
      using prober = openProber([a, b]);
      expect(await prober.reach(a, b, addresses)).toEqual([`${addresses[0]} reached`]);
    }, 60_000);
});
