// Tests that connections of a removed workload do not reach the next workload with its address, in any order of removal of
// interface and endpoint. Policy of the next workload denies all ingress, so only an old connection could reach it.
import { describe, expect, test } from "bun:test";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import type { LinuxDataplane } from "../../../src/dataplane/index.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, type Pod, policy, rule, tier } from "./host.ts";

const OLD_SOURCE_PORT = 45_000;
const NEW_SOURCE_PORT = 45_001;
const denyAll = policy("deny-all", [rule({ action: "deny" })]);
const removeB: DataplaneMessage = {
  type: "workloadEndpointRemove",
  id: { orchestrator: "k8s", workload: "ns1/b", endpoint: "eth0" },
};

const probes = (from: Pod, to: Pod, sourcePort: number) =>
  [to.v4, to.v6].map((address) => ({
    from: from.target,
    to: address,
    port: 53,
    protocol: "udp" as const,
    sourcePort,
  }));

/** Whether conntrack has a flow to the pod, per family. */
function flowsTo(host: DataplaneHost, pod: Pod): boolean[] {
  return [
    ["ipv4", pod.v4],
    ["ipv6", pod.v6],
  ].map(([family = "", address]) =>
    host.namespace.run("conntrack", ["-L", "-f", family, "-p", "udp"]).includes(`dst=${address} `),
  );
}

async function until(condition: () => boolean): Promise<void> {
  const deadlineMs = performance.now() + DataplaneHost.patienceMs;
  while (!condition()) {
    if (performance.now() > deadlineMs) throw new Error(`not within ${DataplaneHost.patienceMs} ms: ${condition}`);
    await Bun.sleep(5);
  }
}

const routeCount = (dataplane: LinuxDataplane) => dataplane.sizes().routes.reduce((sum, { routes }) => sum + routes, 0);

/** Deletes the interface, and returns when a round without its two routes was applied. */
async function deleteInterface(host: DataplaneHost, dataplane: LinuxDataplane, pod: Pod): Promise<void> {
  const before = routeCount(dataplane);
  host.exec(host.hostTarget, "ip", "link", "del", pod.interfaceName);
  await until(() => routeCount(dataplane) <= before - 2);
  await host.send(allowProfile);
}

/** Pods a and b, and a connection between them in both families. */
async function connectedPods(host: DataplaneHost) {
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  host.prober.listen(b.target, "udp", 53);
  const dataplane = host.start();
  await host.send(allowProfile, denyAll, host.endpoint(a), host.endpoint(b), inSync);
  expect(await host.probe(probes(a, b, OLD_SOURCE_PORT), 3000)).toEqual(["reached", "reached"]);
  expect(flowsTo(host, b)).toEqual([true, true]);
  return { a, b, dataplane };
}

for (const backend of BACKENDS)
  describe(backend, () => {
    /** Another pod with the addresses of b. */
    const addNext = (host: DataplaneHost) => {
      const next = host.addPod("c", 3);
      host.prober.listen(next.target, "udp", 53);
      return { next, endpoint: host.endpoint(next, { tiers: [tier(["deny-all"])] }) };
    };
    /** Packets of the old connection are dropped like those of a new one, although the next pod can be reached. */
    const expectClosed = async (host: DataplaneHost, a: Pod, next: Pod) => {
      const routes = () => ["-4", "-6"].map((family) => host.namespace.run("ip", [family, "route"])).join("");
      await until(() => [next.v4, next.v6].every((to) => routes().includes(`${to} dev ${next.interfaceName} `)));
      expect(await host.probe([...probes(a, next, OLD_SOURCE_PORT), ...probes(a, next, NEW_SOURCE_PORT)], 500)).toEqual(
        ["silent", "silent", "silent", "silent"],
      );
      await host.send(host.endpoint(next));
      expect(await host.probe(probes(a, next, NEW_SOURCE_PORT), 3000)).toEqual(["reached", "reached"]);
    };

    test("FD-126 the interface disappears long before the endpoint", async () => {
      await using host = await DataplaneHost.create(backend);
      const { a, b, dataplane } = await connectedPods(host);
      await deleteInterface(host, dataplane, b);
      expect(flowsTo(host, b)).toEqual([true, true]); // the endpoint still exists
      await host.send(removeB);
      const { next, endpoint } = addNext(host);
      await host.send(endpoint);
      await expectClosed(host, a, next);
    });

    test("FD-126 the endpoint disappears long before the interface", async () => {
      await using host = await DataplaneHost.create(backend);
      const { a, b } = await connectedPods(host);
      await host.send(removeB);
      expect(flowsTo(host, b)).toEqual([false, false]);
      host.exec(host.hostTarget, "ip", "link", "del", b.interfaceName);
      const { next, endpoint } = addNext(host);
      await host.send(endpoint);
      await expectClosed(host, a, next);
    });

    test("FD-126 the next endpoint appears together with the removal, as after an interrupted watch", async () => {
      await using host = await DataplaneHost.create(backend);
      const { a, b, dataplane } = await connectedPods(host);
      await deleteInterface(host, dataplane, b);
      const { next, endpoint } = addNext(host);
      await host.send(endpoint, removeB);
      await expectClosed(host, a, next);
    });

    test("FD-126 the next endpoint appears before the removal", async () => {
      await using host = await DataplaneHost.create(backend);
      const { a, b, dataplane } = await connectedPods(host);
      await deleteInterface(host, dataplane, b);
      const { next, endpoint } = addNext(host);
      await host.send(endpoint);
      await expectClosed(host, a, next);
      // The next pod has its own connections by now, which the late removal must not delete.
      await host.send(removeB);
      expect(flowsTo(host, next)).toEqual([true, true]);
    });

    test("FD-126 an endpoint whose interface is replaced keeps its connections, as does a restart", async () => {
      await using host = await DataplaneHost.create(backend);
      const { a, b, dataplane } = await connectedPods(host);
      await deleteInterface(host, dataplane, b);
      const before = routeCount(dataplane);
      host.addPod("b", 3); // the same interface name with another index
      await until(() => routeCount(dataplane) >= before + 2);
      await host.send(host.endpoint(b));
      expect(flowsTo(host, b)).toEqual([true, true]);
      await host.stop();
      host.start();
      await host.send(allowProfile, denyAll, host.endpoint(a), host.endpoint(b), inSync);
      expect(flowsTo(host, b)).toEqual([true, true]);
    });
  });
