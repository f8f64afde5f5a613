// SIGKILL at every step of an ADD: after each message to the kernel's network, each write of the datastore and each
// kernel setting, one after the other, until the plugin lives to the end. Then DEL, or GC with and without the container's
// namespace, must leave nothing.
import { describe, expect, test } from "bun:test";
import { canRun, CniHost, k8s } from "./cni-host.ts";

const canTrace = canRun && Bun.which("strace") !== null;
if (canRun && !canTrace) console.log("tests that kill at every step need strace: skipped");

/** What changes something: netlink by our thread and by another, pages of the database, settings and the result. */
const CALLS = ["sendto", "pwrite64", "write"];
const MOST = 60;

async function expectClean(host: CniHost, step: string): Promise<void> {
  // The kernel takes a dead namespace apart, and its half of a veth with it, in its own time.
  for (let tries = 0; tries < 200 && host.workloadLinks().length > 0; tries++) await Bun.sleep(50);
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
    test(`CI-039 after any ${name}: DEL or GC leave nothing`, async () => {
      await using host = await CniHost.create();
      let count = 1;
      for (; count <= MOST; count++) {
        const step = `${name} ${count}`;
        const pod = host.pod(`kill${name}${count}`);
        const who = count % 3 === 0 ? k8s("ns1", `p${count}`) : {};
        const add = await host.add(pod, { ...who, killAfterCall: { name, count } });
        if (add.code === 0) break;
        expect([step, add.stdout.includes('"code"') ? add.stdout : ""]).toEqual([step, ""]); // killed, not failed
        if (count % 2 === 0) {
          // The runtime knows no container any more; it may have taken the namespace away or not.
          if (count % 4 === 0) pod[Symbol.dispose]();
          const conf = { cniVersion: "1.1.0", "cni.dev/valid-attachments": [] };
          expect(await host.call("GC", undefined, { conf })).toMatchObject({ code: 0 });
        } else expect(await host.del(pod, who)).toMatchObject({ code: 0 });
        await expectClean(host, step);
      }
      expect(count).toBeGreaterThan(3);
      expect(count).toBeLessThan(MOST);
    }, 180_000);

  for (const name of CALLS)
    test(`after any ${name}, and is asked for again, has its wire and one address`, async () => {
      await using host = await CniHost.create();
      let count = 1;
      for (; count <= MOST; count++) {
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
      expect(count).toBeLessThan(MOST);
    }, 180_000);
});
