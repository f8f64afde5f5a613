// Tests ADD while Felix is running: the plugin waits for the status file that Felix writes for the new endpoint.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CallOptions, canRun, CniHost, collect, DIST, k8s } from "./cni-host.ts";

/** The plugin's timeout. If Felix did not write the file, ADD would take at least as long. */
const TIMEOUT_SECONDS = 30;

async function startFelix(host: CniHost): Promise<void> {
  const felix = host.start(join(DIST, "calico-felix"), [], {
    DATASTORE_TYPE: "sqlite",
    CALICO_SQLITE_PATH: host.sqlitePath,
    FELIX_FELIXHOSTNAME: "n1",
    FELIX_LOGFILEPATH: "none",
    FELIX_LOGSEVERITYSYS: "none",
    FELIX_LOGSEVERITYSCREEN: "warning",
  });
  const ended = collect(felix).then(({ stderr }) => {
    throw new Error(`Felix ended:\n${stderr}`);
  });
  // Felix creates the folder when the dataplane is in sync for the first time.
  await Promise.race([eventually(() => existsSync(join(host.folder, "run/endpoint-status")), 30_000), ended]);
  ended.catch(() => {}); // the host ends Felix when the test is over
}

describe.skipIf(!canRun)("ADD beside Felix", () => {
  test("CI-040 ends when policy is programmed: for a container, its second interface, a Mesos task and a pod", async () => {
    await using host = await CniHost.create();
    await startFelix(host);
    const task = { key: "projectcalico.org/namespace", value: "shop" };
    const mesos = { "org.apache.mesos": { network_info: { labels: { labels: [task] } } } };
    const container = host.pod("ct-q");
    const cases: readonly (CallOptions & { readonly statusFile: string; readonly pod: typeof container })[] = [
      { pod: container, statusFile: "cni default%2Fct-q eth0" },
      { pod: container, statusFile: "cni default%2Fct-q eth0", env: { CNI_IFNAME: "eth1" } },
      { pod: host.pod("task1"), statusFile: "cni shop%2Ftask1 eth0", conf: { args: mesos } },
      { pod: host.pod("c2"), statusFile: "k8s web%2Fp2 eth0", ...k8s("web", "p2") },
    ];
    for (const { pod, statusFile, env, conf } of cases) {
      const start = performance.now();
      const options = { conf: { ...conf, policy_setup_timeout_seconds: TIMEOUT_SECONDS }, ...(env && { env }) };
      const run = await host.add(pod, options);
      expect(run).toMatchObject({ code: 0 });
      expect(readdirSync(join(host.folder, "run/endpoint-status"))).toContain(statusFile);
      expect(performance.now() - start).toBeLessThan((TIMEOUT_SECONDS / 2) * 1000);
    }
  }, 180_000);
});
