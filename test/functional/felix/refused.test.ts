// The agent as a whole on a host that lacks something: it starts, says so once, and shows it where operators look.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { readRefused, refusedByKernel, refusedNote } from "../../../src/calicoctl/doctor/host-refused.ts";
import type { HostFacts } from "../../../src/calicoctl/doctor/facts.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { FelixProcess } from "../../support/felix-process.ts";
import { TestNamespace } from "../kernel/namespace.ts";

/** The tools of a host whose kernel has no NFLOG. */
function toolsWithoutNflog(folder: string): string {
  const tools = join(folder, "tools");
  mkdirSync(tools);
  for (const tool of ["iptables-legacy-restore", "ip6tables-legacy-restore"])
    writeFileSync(
      join(tools, tool),
      `#!/bin/sh
text=$(cat)
case "$text" in *"--jump NFLOG"*) echo "${tool}: line 3 failed" >&2; exit 1;; esac
printf '%s\\n' "$text" | /usr/sbin/${tool} "$@"
`,
      { mode: 0o755 },
    );
  return tools;
}

/** An agent with iptables in a namespace, ready, and what operators ask it. */
async function readyAgent(space: TestNamespace, felix: FelixProcess, environment: Readonly<Record<string, string>>) {
  const within = ["ip", "netns", "exec", space.name, "sh", "-c", 'mount -t tmpfs calico /var/lib && exec "$@"', "sh"];
  felix.start(
    {
      FELIX_USEINTERNALDATAPLANEDRIVER: "true",
      FELIX_NFTABLESMODE: "Disabled",
      FELIX_IPTABLESBACKEND: "legacy",
      FELIX_PROMETHEUSMETRICSENABLED: "true",
      FELIX_PROMETHEUSMETRICSPORT: "9091",
      FELIX_FAILSAFEINBOUNDHOSTPORTS: "none",
      ...environment,
    },
    [],
    within,
  );
  const ask = (url: string): string => {
    try {
      return space.run("curl", ["-sf", url]);
    } catch {
      return "";
    }
  };
  const readiness = () => ask(`http://127.0.0.1:${felix.healthPort}/readiness`);
  await eventually(() => {
    if (!felix.isRunning) throw new Error(`the agent ended:\n${felix.output}`);
    return readiness() !== "";
  }, 20_000);
  const file = join(felix.folder, "run", "programmed", "refused.json");
  return {
    readiness,
    metrics: () => ask("http://127.0.0.1:9091/metrics"),
    told: (sentence: string) => felix.output.split("\n").filter((line) => line.includes(sentence)),
    written: (): unknown => JSON.parse(readFileSync(file, "utf8")),
    finding: () => [...refusedByKernel({ node: "node-a", refused: readRefused(file) } as unknown as HostFacts)][0],
    note: () => refusedNote(readRefused(file)),
  };
}

test("flow logs on a kernel without NFLOG: one line, readiness, gauge, file and doctor tell, and the agent works", async () => {
  using space = new TestNamespace("refused");
  await using felix = await FelixProcess.prepare();
  const agent = await readyAgent(space, felix, {
    PATH: `${toolsWithoutNflog(felix.folder)}:${process.env["PATH"]}`,
    FELIX_FLOWLOGSLOCALREPORTER: "Enabled",
  });
  expect(agent.readiness()).toContain("the kernel refuses flow logs: calicoctl doctor");
  expect(agent.metrics()).toContain('felix_int_dataplane_refused{kind="feature"} 1');
  expect(agent.told("flow logs have no effect here")).toHaveLength(1);
  expect(agent.written()).toMatchObject([{ kind: "feature", where: "flow logs" }]);
  expect(agent.finding()).toMatchObject({
    severity: "warning",
    problem: "the kernel of node-a refuses flow logs",
  });
  const saved = space.run("iptables-legacy-save", []);
  expect(saved).toContain("-j cali-FORWARD");
  expect(saved).not.toContain("NFLOG");
  expect(saved).not.toContain("cali-probe");
}, 60_000);

test("an IP set the kernel refuses: one line, readiness, gauge, file, doctor and explain tell, and the agent works", async () => {
  using space = new TestNamespace("refused");
  await using felix = await FelixProcess.prepare();
  space.run("ip", ["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
  // No hash of the kernel's holds the address of zeros.
  await felix.put("HostEndpoint", "nowhere", {
    node: "node-b",
    interfaceName: "eth0",
    expectedIPs: ["0.0.0.0"],
    ports: [{ name: "web", port: 80, protocol: "TCP" }],
  });
  await felix.put("HostEndpoint", "here", { node: "node-a", interfaceName: "eth0" });
  await felix.put("GlobalNetworkPolicy", "no-web", {
    selector: "all()",
    types: ["Egress"],
    egress: [{ action: "Deny", protocol: "TCP", destination: { ports: ["web"] } }, { action: "Allow" }],
  });
  const agent = await readyAgent(space, felix, {});
  expect(agent.readiness()).toContain("the kernel refuses ipset cali40");
  expect(agent.metrics()).toContain('felix_int_dataplane_refused{kind="set"} 1');
  expect(agent.told("the kernel refuses an IP set")).toHaveLength(1);
  expect(agent.written()).toMatchObject([{ kind: "set", where: expect.stringMatching(/^ipset cali40/) }]);
  expect(agent.finding()).toMatchObject({
    severity: "error",
    problem: "the kernel of node-a refuses 1 IP set: traffic that policy may allow is dropped",
  });
  expect(agent.note()).toContain("refuses 1 rule or set");
  const saved = space.run("iptables-legacy-save", ["-t", "filter"]);
  expect(saved).toMatch(/-A cali-po-\S+ .*Closed: the rule here was refused by the kernel.* -j DROP/);
}, 60_000);
