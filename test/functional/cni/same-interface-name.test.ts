// Tests two workloads whose names result in the same name of the host interface. The author of a pod can find such a pod name.
// The workload that starts second gets an interface with another name, and its own policy.
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { podInterfaceName } from "../../../src/model/kubernetes/pod.ts";
import { canRun, CniHost, interfaceOf, k8s, type Pod } from "./cni-host.ts";
import { openProber } from "./reach.ts";
import { runFelix } from "./run-felix.ts";

// These two names have the same 44 bits of SHA-1.
const VICTIM = k8s("prod", "db-1631473");
const THIEF = k8s("evil", "web-5155352");
const USUAL = podInterfaceName("prod", "db-1631473");

const BACKENDS = {
  nftables: { FELIX_NFTABLESMODE: "Enabled" },
  iptables: { FELIX_NFTABLESMODE: "Disabled", FELIX_IPTABLESBACKEND: "NFT" },
};

function addressesOf({ kernel }: Pod): string[] {
  const link = kernel.links.get("eth0")?.index ?? 0;
  return kernel.addresses.list({ link, version: 4 }).map(({ address }) => address);
}

const denyIngress = (host: CniHost, namespace: string) =>
  host.put("GlobalNetworkPolicy", "default.deny", {
    selector: `projectcalico.org/namespace == '${namespace}'`,
    types: ["Ingress"],
  });

const interfacesOf = async (host: CniHost): Promise<Readonly<Record<string, unknown>>> =>
  Object.fromEntries(
    [...(await host.all("WorkloadEndpoint")).values()].map(({ spec }) => {
      const { pod, containerID, interfaceName } = spec as Record<string, unknown>;
      return [pod ?? containerID, interfaceName];
    }),
  );

describe.skipIf(!canRun)("two pods with the same hash", () => {
  test("have the same computed interface name", () => expect(podInterfaceName("evil", "web-5155352")).toBe(USUAL));

  for (const [name, env] of Object.entries(BACKENDS))
    test(`${name}: the second one starts under another interface name, and each has its own policy`, async () => {
      await using host = await CniHost.create();
      await denyIngress(host, "prod");
      const stop = await runFelix(host, env);
      const [thief, victim, client] = [host.pod("thief"), host.pod("victim"), host.pod("client")];
      expect(interfaceOf(await host.add(thief, THIEF))).toBe(USUAL);
      const other = interfaceOf(await host.add(victim, VICTIM));
      expect(other).toMatch(/^cali[0-9a-f]{11}$/);
      expect(other).not.toBe(USUAL);
      expect((await host.add(client, k8s("ns1", "client"))).code).toBe(0);
      expect(await interfacesOf(host)).toMatchObject({ "web-5155352": USUAL, "db-1631473": other });
      for (const [pod, args] of [
        [thief, THIEF],
        [victim, VICTIM],
      ] as const)
        expect(await host.call("CHECK", pod, args)).toMatchObject({ code: 0 });

      using prober = openProber([thief, victim, client]);
      const reached = async (): Promise<boolean[]> =>
        Promise.all(
          [thief, victim].map(async (pod) => {
            const [outcome = ""] = await prober.reach(client, pod, addressesOf(pod));
            return outcome.endsWith(" reached");
          }),
        );
      const reaches = (...expected: readonly boolean[]) =>
        eventually(async () => Bun.deepEquals(await reached(), expected), 30_000, `reached: ${expected.join(", ")}`);
      await reaches(true, false);
      await denyIngress(host, "evil");
      await reaches(false, true);
      await stop();
    }, 120_000);

  test("a repeated ADD, a new container, DEL and GC find the interface under its name", async () => {
    await using host = await CniHost.create();
    const [thief, first, second, third] = ["thief", "first", "second", "third"].map((id) => host.pod(id)) as [
      Pod,
      Pod,
      Pod,
      Pod,
    ];
    const conf = { cniVersion: "1.1.0" };
    const victim = { ...VICTIM, conf };
    expect((await host.add(thief, THIEF)).code).toBe(0);
    const other = interfaceOf(await host.add(first, victim));
    expect(interfaceOf(await host.add(first, victim))).toBe(other);
    expect(host.workloadLinks().sort()).toEqual([USUAL, other].sort());

    const next = interfaceOf(await host.add(second, victim));
    expect([USUAL, other]).not.toContain(next);
    expect(host.workloadLinks().sort()).toEqual([USUAL, next].sort());
    expect((await host.del(first, victim)).code).toBe(0);
    expect(await host.call("CHECK", second, victim)).toMatchObject({ code: 0 });

    const gc = (...alive: readonly string[]) =>
      host.call("GC", undefined, {
        conf: { ...conf, "cni.dev/valid-attachments": alive.map((containerID) => ({ containerID, ifname: "eth0" })) },
      });
    expect(await gc("thief", "second")).toMatchObject({ code: 0 });
    expect(host.workloadLinks().sort()).toEqual([USUAL, next].sort());
    expect((await host.del(thief, THIEF)).code).toBe(0);
    expect(interfaceOf(await host.add(third, victim))).toBe(USUAL);
    expect(await interfacesOf(host)).toEqual({ "db-1631473": USUAL });
    expect(host.workloadLinks()).toEqual([USUAL]);

    expect((await host.del(second, victim)).code).toBe(0);
    expect(interfaceOf(await host.add(thief, THIEF))).not.toBe(USUAL);
    expect(await gc("third")).toMatchObject({ code: 0 });
    expect(await interfacesOf(host)).toEqual({ "db-1631473": USUAL });
    expect(host.workloadLinks()).toEqual([USUAL]);
    expect((await host.del(third, victim)).code).toBe(0);
    expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
    expect(await interfacesOf(host)).toEqual({});
  });
});

describe.skipIf(!canRun)("two containers outside Kubernetes whose IDs begin alike", () => {
  test("have their own interfaces", async () => {
    await using host = await CniHost.create();
    const [first, second] = [host.pod("0123456789abc"), host.pod("0123456789abd")];
    const usual = "cali0123456789a";
    expect(interfaceOf(await host.add(first))).toBe(usual);
    const other = interfaceOf(await host.add(second));
    expect(other).toMatch(/^cali[0-9a-f]{11}$/);
    expect(await interfacesOf(host)).toEqual({ [first.containerId]: usual, [second.containerId]: other });
    // A repeated ADD keeps the interface, or creates it again if it is gone.
    expect(interfaceOf(await host.add(second))).toBe(other);
    host.kernel.links.delete(other);
    expect(interfaceOf(await host.add(second))).toBe(other);
    expect(await host.call("CHECK", second)).toMatchObject({ code: 0 });
    expect((await host.del(first)).code).toBe(0);
    expect(interfaceOf(await host.add(second))).toBe(other);
    host.kernel.links.delete(other);
    expect(interfaceOf(await host.add(second))).toBe(usual);
    expect(await host.call("CHECK", second)).toMatchObject({ code: 0 });
    expect(await interfacesOf(host)).toEqual({ [second.containerId]: usual });
    expect((await host.del(second)).code).toBe(0);
    expect([host.workloadLinks(), await host.allocations()]).toEqual([[], []]);
  });
});
