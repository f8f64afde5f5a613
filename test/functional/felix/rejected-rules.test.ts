// Felix on a host whose kernel rejects something: it starts, logs the problem once, and reports it to operators.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { readRejected, rejectedByKernel, rejectedNote } from "../../../src/calicoctl/doctor/host-rejected-rules.ts";
import type { HostFacts } from "../../../src/calicoctl/doctor/facts.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { FelixProcess } from "../../support/felix-process.ts";
import { TestNamespace } from "../kernel/test-namespace.ts";

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

/** Starts Felix with iptables in a namespace, waits until it is ready, and returns what operators can read. */
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
  const file = join(felix.folder, "run", "programmed", "rejected.json");
  return {
    readiness,
    metrics: () => ask("http://127.0.0.1:9091/metrics"),
    logged: (sentence: string) => felix.output.split("\n").filter((line) => line.includes(sentence)),
    written: (): unknown => JSON.parse(readFileSync(file, "utf8")),
    finding: () => [...rejectedByKernel({ node: "node-a", rejected: readRejected(file) } as unknown as HostFacts)][0],
    note: () => rejectedNote(readRejected(file)),
  };
}

test("flow logs on a kernel without NFLOG: log, readiness probe, gauge, file and doctor report it, and Felix works", async () => {
  using space = new TestNamespace("rejected");
  await using felix = await FelixProcess.prepare();
  const agent = await readyAgent(space, felix, {
    PATH: `${toolsWithoutNflog(felix.folder)}:${process.env["PATH"]}`,
    FELIX_FLOWLOGSLOCALREPORTER: "Enabled",
  });
  expect(agent.readiness()).toContain("the kernel rejects flow logs: run calicoctl doctor");
  expect(agent.metrics()).toContain('felix_int_dataplane_rejected{kind="feature"} 1');
  expect(agent.logged("kernel does not support NFLOG")).toHaveLength(1);
  expect(agent.written()).toMatchObject([{ kind: "feature", where: "flow logs" }]);
  expect(agent.finding()).toMatchObject({
    severity: "warning",
    problem: "the kernel of node-a rejects flow logs",
  });
  const saved = space.run("iptables-legacy-save", []);
  expect(saved).toContain("-j cali-FORWARD");
  expect(saved).not.toContain("NFLOG");
  expect(saved).not.toContain("cali-probe");
}, 60_000);

test("a rejected IP set: log, readiness probe, gauge, file, doctor and explain report it, and Felix works", async () => {
  using space = new TestNamespace("rejected");
  await using felix = await FelixProcess.prepare();
  space.run("ip", ["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
  // The kernel's hash sets cannot contain 0.0.0.0.
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
  expect(agent.readiness()).toContain("the kernel rejects ipset cali40");
  expect(agent.metrics()).toContain('felix_int_dataplane_rejected{kind="set"} 1');
  expect(agent.logged("kernel rejected an IP set")).toHaveLength(1);
  expect(agent.written()).toMatchObject([{ kind: "set", where: expect.stringMatching(/^ipset cali40/) }]);
  expect(agent.finding()).toMatchObject({
    severity: "error",
    problem: "the kernel of node-a rejects 1 IP set: traffic that policy may allow is dropped",
  });
  expect(agent.note()).toContain("rejects 1 rule or set");
  const saved = space.run("iptables-legacy-save", ["-t", "filter"]);
  expect(saved).toMatch(/-A cali-po-\S+ .*Closed: the rule here was refused by the kernel.* -j DROP/);
}, 60_000);
