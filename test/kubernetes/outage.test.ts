// The agent and the node-local CNI service on a network that loses packets to the API server without a reset. The cases
// wait for most of their time, so all run at once.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { delay } from "../../src/lib/retry.ts";
import { lookUntil } from "../../src/lib/testing/eventually.ts";
import { canRun } from "../functional/cni/cni-host.ts";
import { canCutPaths, PacketDrop } from "../support/cut-path.ts";
import { AgentBehindPath, RECOVERY_MS, surviveBlackHole, surviveCut } from "../support/outage.ts";
import { type Cluster, isAvailable, startCluster } from "./cluster.ts";
import { ServedHost } from "./served-host.ts";

const CUT_SECONDS = 40;
const TIMEOUT_MS = 180_000;

describe.skipIf(!isAvailable || !canCutPaths)("the agent on the Kubernetes API", () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await startCluster({ namespaces: ["ns1"] });
  }, 600_000);
  afterAll(async () => await cluster?.[Symbol.asyncDispose]());

  test.concurrent(
    `is up to date within 20 s after packets were dropped for ${CUT_SECONDS} s`,
    async () => {
      await using agent = await AgentBehindPath.onKubernetes(cluster);
      console.log(`Kubernetes, cut of ${CUT_SECONDS} s: ${(await surviveCut(agent, CUT_SECONDS)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "replaces connections whose packets are dropped for good within 20 s",
    async () => {
      await using agent = await AgentBehindPath.onKubernetes(cluster);
      console.log(`Kubernetes, black hole: ${(await surviveBlackHole(agent)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );

  test.skipIf(!canRun).concurrent(
    "the CNI service attaches pods within 20 s after its connections were replaced, and after a cut",
    async () => {
      await using served = await ServedHost.on(cluster);
      const { host, conf } = served;
      const packets = new PacketDrop(host.name);
      const ports = [served.forwarder.port];
      await served.warmUp();
      const addWithin = async (name: string, withinMs: number): Promise<number> => {
        const call = await served.makePod(name);
        const pod = host.pod();
        const started = performance.now();
        await lookUntil(
          async () => (await host.add(pod, { conf, ...call })).code,
          (code) => code === 0,
          withinMs,
        );
        return (performance.now() - started) / 1000;
      };
      packets.cutExisting(ports);
      const replaced = await addWithin("after-black-hole", RECOVERY_MS);
      packets.open();
      packets.cut(ports);
      await delay(CUT_SECONDS * 1000);
      packets.open();
      const reopened = await addWithin("after-cut", RECOVERY_MS);
      console.log(`CNI on Kubernetes, black hole: ${replaced.toFixed(1)} s; cut: ${reopened.toFixed(1)} s`);
      expect(replaced).toBeLessThan(RECOVERY_MS / 1000);
      expect(reopened).toBeLessThan(RECOVERY_MS / 1000);
    },
    TIMEOUT_MS,
  );
});
