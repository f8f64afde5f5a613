// Programming 200 local endpoints under 1,000 policies from nothing, one policy edit, one member more in a set of 100,000,
// and a restart with nothing to do: nftables beside iptables, CPU and wall time, in a network namespace of its own.
import { spawnSync } from "node:child_process";
import type { DataplaneMessage, PolicyId, ProtoRule } from "../src/calc/index.ts";
import { createRulePlanes, type RulesKernel } from "../src/dataplane/rule-planes.ts";
import { createRuleManagers } from "../src/dataplane/rules-dataplane.ts";
import { rulesConfig } from "../src/dataplane/index.ts";
import { detectFeatures } from "../src/dataplane/iptables/detect.ts";
import { ConfigEngine } from "../src/felix/config/index.ts";
import { Ipsets, Iptables, Nft } from "../src/kernel/index.ts";
import type { Cidr } from "../src/lib/ip.ts";
import { silentLogger } from "../src/lib/log.ts";

if (process.env["CALICO_BENCH_INSIDE"] === undefined) {
  const { status } = spawnSync("unshare", ["--net", process.execPath, import.meta.filename, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { ...process.env, CALICO_BENCH_INSIDE: "1" },
  });
  process.exit(status ?? 1);
}

const ENDPOINTS = 200;
const POLICIES = 1000;
const POLICIES_PER_ENDPOINT = 10;

const rule = (more: Partial<ProtoRule>): ProtoRule => ({
  action: "allow",
  srcNet: [],
  srcPorts: [],
  dstNet: [],
  dstPorts: [],
  srcIpSetIds: [],
  dstIpSetIds: [],
  srcNamedPortIpSetIds: [],
  dstNamedPortIpSetIds: [],
  dstIpPortSetIds: [],
  notSrcNet: [],
  notSrcPorts: [],
  notDstNet: [],
  notDstPorts: [],
  notSrcIpSetIds: [],
  notDstIpSetIds: [],
  notSrcNamedPortIpSetIds: [],
  notDstNamedPortIpSetIds: [],
  original: {},
  ruleId: "",
  ...more,
});
const id = (p: number): PolicyId => ({ kind: "NetworkPolicy", namespace: `ns${p % 10}`, name: `default.policy${p}` });
const tcp = { name: "tcp" };

function policy(p: number, port: number): DataplaneMessage {
  return {
    type: "activePolicyUpdate",
    id: id(p),
    policy: {
      inboundRules: [
        rule({
          protocol: tcp,
          srcIpSetIds: [`s:from${p % 700}`],
          dstPorts: [
            { first: port, last: port },
            { first: 30000, last: 30010 },
          ],
        }),
        rule({ action: "deny", protocol: { name: "udp" }, srcNet: ["192.0.2.0/24" as Cidr] }),
      ],
      outboundRules: [
        rule({ protocol: tcp, dstIpSetIds: [`s:to${p % 100}`], dstPorts: [{ first: port, last: port }] }),
        rule({ protocol: { name: "udp" }, dstPorts: [{ first: 53, last: 53 }] }),
      ],
      untracked: false,
      preDnat: false,
      namespace: `ns${p % 10}`,
      originalSelector: `app == "app${p % 100}" && projectcalico.org/namespace == "ns${p % 10}"`,
      performanceHints: [],
      tier: "default",
    },
  };
}
function* cluster(): Iterable<DataplaneMessage> {
  const address = (n: number) => `10.${64 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}/32`;
  for (let s = 0; s < 700; s++)
    yield {
      type: "ipSetUpdate",
      id: `s:from${s}`,
      setType: "net",
      members: Array.from({ length: 14 }, (_, i) => address(s * 14 + i)),
    };
  for (let s = 0; s < 100; s++)
    yield {
      type: "ipSetUpdate",
      id: `s:to${s}`,
      setType: "net",
      members: Array.from({ length: 200 }, (_, i) => address(s * 200 + i)),
    };
  yield {
    type: "ipSetUpdate",
    id: "s:large",
    setType: "net",
    members: Array.from({ length: 100_000 }, (_, i) => address(i)),
  };
  for (let p = 0; p < POLICIES; p++) yield policy(p, 9000);
  yield {
    type: "activeProfileUpdate",
    name: "kns.ns",
    profile: { inboundRules: [rule({})], outboundRules: [rule({})] },
  };
  for (let e = 0; e < ENDPOINTS; e++) {
    const policies = Array.from({ length: POLICIES_PER_ENDPOINT }, (_, i) => id((e % 100) + 100 * i));
    yield {
      type: "workloadEndpointUpdate",
      id: { orchestrator: "k8s", workload: `ns/pod${e}`, endpoint: "eth0" },
      endpoint: {
        state: "active",
        name: `cali${e.toString(16).padStart(11, "0")}`,
        mac: "",
        profileIds: ["kns.ns"],
        ipv4Nets: [address(e) as Cidr],
        ipv6Nets: [],
        tiers: [{ name: "default", ingressPolicies: policies, egressPolicies: policies, defaultAction: "Deny" }],
        ipv4Nat: [],
        ipv6Nat: [],
        allowSpoofedSourcePrefixes: [],
        annotations: {},
        qosPolicies: [],
        isIstioAmbient: false,
        liveMigrationRole: "none",
      },
    };
  }
}

const engine = new ConfigEngine({ exists: () => true, findExecutable: (name) => name }, { hostname: "host0" });
const parameters = engine.config;
const facts = {
  hostname: "host0",
  ipipEnabled: false,
  vxlanEnabled: false,
  vxlanEnabledV6: false,
  noEncapNeeded: false,
  ipvs: false,
};

function open(kernel: RulesKernel) {
  const config = rulesConfig(parameters, facts, kernel.backend);
  const rules = createRulePlanes({ kernel, config, parameters, versions: [4], logger: silentLogger });
  const { managers } = createRuleManagers({
    config,
    planes: rules.planes,
    chainNameLimit: rules.chainNameLimit,
    hostname: "host0",
    externalNodes: [],
    floatingIps: false,
  });
  const { signal } = new AbortController();
  return {
    send: (message: DataplaneMessage) => {
      for (const manager of managers) manager.onUpdate(message);
    },
    apply: async () => {
      for (const manager of managers) manager.resolve?.();
      for (const manager of managers) await manager.apply?.(signal);
      for (const set of rules.sets) await set.apply(signal);
      await Promise.all(rules.tables.map((table) => table.apply(signal)));
      for (const set of rules.sets) await set.applyDeletions(signal);
    },
  };
}

const features = detectFeatures({ iptablesVersion: "1.8.9", kernelVersion: "6.1.0" });
const kernels: Readonly<Record<string, () => RulesKernel>> = {
  nftables: () => ({ backend: "nftables", ruleset: new Nft() }),
  "iptables-nft": () => iptables("nft"),
  "iptables-legacy": () => iptables("legacy"),
};
function iptables(variant: "legacy" | "nft"): RulesKernel {
  return {
    backend: "iptables",
    variant,
    features,
    ipsets: new Ipsets(),
    iptables: (family) => new Iptables({ family, variant }),
  };
}

console.log("200 local endpoints, 1,000 policies, one set of 100,000: ms wall (ms CPU of this process)");
const only = process.argv[2];
for (const [name, kernel] of Object.entries(kernels)) {
  if (only !== undefined && only !== name) continue;
  const first = open(kernel());
  const start = await measure(async () => {
    for (const message of cluster()) first.send(message);
    await first.apply();
  });
  const edits: Cost[] = [];
  for (let i = 0; i < 20; i++)
    edits.push(
      await measure(async () => {
        first.send(policy((i * 37) % POLICIES, 10_000 + i));
        await first.apply();
      }),
    );
  const members: Cost[] = [];
  for (let i = 0; i < 20; i++)
    members.push(
      await measure(async () => {
        first.send({ type: "ipSetDeltaUpdate", id: "s:large", added: [`10.99.0.${i}/32`], removed: [] });
        await first.apply();
      }),
    );
  const again = open(kernel());
  const restart = await measure(async () => {
    for (const message of cluster()) again.send(message);
    for (let i = 0; i < 20; i++) again.send(policy((i * 37) % POLICIES, 10_000 + i));
    again.send({
      type: "ipSetDeltaUpdate",
      id: "s:large",
      added: Array.from({ length: 20 }, (_, i) => `10.99.0.${i}/32`),
      removed: [],
    });
    await again.apply();
  });
  console.log(
    `  ${name.padEnd(16)} from nothing ${show(start)}   one policy ${show(median(edits))}   one member ${show(median(members))}   restart ${show(restart)}`,
  );
  spawnSync("nft", ["flush", "ruleset"]);
  for (const tool of ["iptables-legacy", "iptables-nft"])
    for (const table of ["raw", "mangle", "nat", "filter"]) {
      spawnSync(tool, ["-t", table, "-F"]);
      spawnSync(tool, ["-t", table, "-X"]);
    }
  spawnSync("ipset", ["destroy"]);
}

interface Cost {
  readonly wall: number;
  readonly cpu: number;
}
async function measure(body: () => Promise<void>): Promise<Cost> {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await body();
  const used = process.cpuUsage(cpu);
  return { wall: performance.now() - start, cpu: (used.user + used.system) / 1000 };
}
function median(costs: readonly Cost[]): Cost {
  return costs.toSorted((a, b) => a.wall - b.wall)[costs.length >> 1] ?? { wall: 0, cpu: 0 };
}
function show({ wall, cpu }: Cost): string {
  return `${wall.toFixed(wall < 100 ? 1 : 0)} (${cpu.toFixed(cpu < 100 ? 1 : 0)})`;
}
