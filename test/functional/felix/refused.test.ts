// The agent as a whole on a host that lacks something: it starts, says so once, and shows it where operators look.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { readRefused, refusedByKernel } from "../../../src/calicoctl/doctor/host-refused.ts";
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

test("flow logs on a kernel without NFLOG: one line, readiness, gauge, file and doctor tell, and the agent works", async () => {
  using space = new TestNamespace("refused");
  await using felix = await FelixProcess.prepare();
  const within = ["ip", "netns", "exec", space.name, "sh", "-c", 'mount -t tmpfs calico /var/lib && exec "$@"', "sh"];
  felix.start(
    {
      PATH: `${toolsWithoutNflog(felix.folder)}:${process.env["PATH"]}`,
      FELIX_USEINTERNALDATAPLANEDRIVER: "true",
      FELIX_NFTABLESMODE: "Disabled",
      FELIX_IPTABLESBACKEND: "legacy",
      FELIX_FLOWLOGSLOCALREPORTER: "Enabled",
      FELIX_PROMETHEUSMETRICSENABLED: "true",
      FELIX_PROMETHEUSMETRICSPORT: "9091",
      FELIX_FAILSAFEINBOUNDHOSTPORTS: "none",
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
  await eventually(() => {
    if (!felix.isRunning) throw new Error(`the agent ended:\n${felix.output}`);
    return ask(`http://127.0.0.1:${felix.healthPort}/readiness`) !== "";
  }, 20_000);
  expect(ask(`http://127.0.0.1:${felix.healthPort}/readiness`)).toContain(
    "the kernel refuses flow logs: calicoctl doctor",
  );
  expect(ask("http://127.0.0.1:9091/metrics")).toContain('felix_int_dataplane_refused{kind="feature"} 1');
  const said = felix.output.split("\n").filter((line) => line.includes("flow logs have no effect here"));
  expect(said).toHaveLength(1);
  const file = join(felix.folder, "run", "programmed", "refused.json");
  expect(JSON.parse(readFileSync(file, "utf8"))).toMatchObject([{ kind: "feature", where: "flow logs" }]);
  const [finding] = refusedByKernel({ node: "node-a", refused: readRefused(file) } as unknown as HostFacts);
  expect(finding).toMatchObject({ severity: "warning", problem: "the kernel of node-a refuses flow logs" });
  const saved = space.run("iptables-legacy-save", []);
  expect(saved).toContain("-j cali-FORWARD");
  expect(saved).not.toContain("NFLOG");
  expect(saved).not.toContain("cali-probe");
}, 60_000);
