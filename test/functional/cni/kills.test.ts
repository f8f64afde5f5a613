// Kills ADD with SIGKILL at every step: after the first, second, … netlink message, datastore write or sysctl, until the plugin
// completes. Each time DEL, or GC with or without the container's namespace, must remove everything.
import { describe, expect, test } from "bun:test";
import { canRun, CniHost, k8s } from "./cni-host.ts";
import { pollUntil } from "../../../src/lib/testing/eventually.ts";

const canTrace = canRun && Bun.which("strace") !== null;
if (canRun && !canTrace) console.log("tests that kill at every step need strace: skipped");

/** System calls for netlink, for the datastore file, and for sysctls and the result. */
const CALLS = ["sendto", "pwrite64", "write"];
const MAX_CALLS = 60;

async function expectClean(host: CniHost, step: string): Promise<void> {
  // The kernel deletes a namespace, and its end of a veth pair, asynchronously.
  await pollUntil(
    () => host.workloadLinks(),
    (links) => links.length === 0,
    10_000,
  );
  const left = {
    links: host.workloadLinks(),
    routes: host.kernel.routes
      .list({ version: 4, table: 254 })
      .map((route) => route.destination)
      .filter((destination) => destination.startsWith("10.65.")),
    allocations: await host.allocations(),
    handles: await host.handles(),
    endpoints: [...(await host.all("WorkloadEndpoint")).keys()],
  };
  expect([step, left]).toEqual([step, { links: [], routes: [], allocations: [], handles: [], endpoints: [] }]);
}

describe.skipIf(!canTrace)("an ADD that is killed", () => {
  for (const name of CALLS)
    test(`CI-039 after any ${name}: DEL or GC removes everything`, async () => {
      await using host = await CniHost.create();
      let count = 1;
      for (; count <= MAX_CALLS; count++) {
        const step = `${name} ${count}`;
        const pod = host.pod(`kill${name}${count}`);
        const who = count % 3 === 0 ? k8s("ns1", `p${count}`) : {};
        const add = await host.add(pod, { ...who, killAfterCall: { name, count } });
        if (add.code === 0) break;
        expect([step, add.stdout.includes('"code"') ? add.stdout : ""]).toEqual([step, ""]); // killed, not failed
        if (count % 2 === 0) {
          // The runtime has no containers any more; it may or may not have deleted the namespace.
          if (count % 4 === 0) pod[Symbol.dispose]();
          const conf = { cniVersion: "1.1.0", "cni.dev/valid-attachments": [] };
          expect(await host.call("GC", undefined, { conf })).toMatchObject({ code: 0 });
        } else expect(await host.del(pod, who)).toMatchObject({ code: 0 });
        await expectClean(host, step);
      }
      expect(count).toBeGreaterThan(3);
      expect(count).toBeLessThan(MAX_CALLS);
    }, 180_000);

  for (const name of CALLS)
    test(`after any ${name}, and repeated, has its interface and one address`, async () => {
      await using host = await CniHost.create();
      let count = 1;
      for (; count <= MAX_CALLS; count++) {
        const step = `${name} ${count}`;
        const pod = host.pod(`again${name}${count}`);
        const who = count % 2 === 0 ? k8s("ns1", `p${count}`) : {};
        const killed = await host.add(pod, { ...who, killAfterCall: { name, count } });
        if (killed.code === 0) break;
        const added = await host.add(pod, who);
        expect([step, added.code, added.stdout]).toEqual([step, 0, expect.stringContaining("10.65.0.")]);
        const checked = await host.call("CHECK", pod, { ...who, conf: { prevResult: added.json } });
        expect([step, checked.stdout]).toEqual([step, "OK\n"]);
        expect([step, await host.allocations()]).toEqual([step, [expect.any(String)]]);
        expect(await host.del(pod, who)).toMatchObject({ code: 0 });
        await expectClean(host, step);
      }
      expect(count).toBeGreaterThan(3);
      expect(count).toBeLessThan(MAX_CALLS);
    }, 180_000);
});
