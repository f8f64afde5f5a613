// Tests the agent and the CNI service on a network that drops packets to the API server without a reset. The cases mostly
// wait, so all of them run at the same time.
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { delay } from "../../src/lib/retry.ts";
import { pollUntil } from "../../src/lib/testing/eventually.ts";
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

  const faults: Readonly<Record<string, (packets: PacketDrop, ports: readonly number[]) => Promise<void>>> = {
    [`packets were dropped for ${CUT_SECONDS} s`]: async (packets, ports) => {
      packets.cut(ports);
      await delay(CUT_SECONDS * 1000);
      packets.open();
    },
    "the packets of its connections were dropped for good": async (packets, ports) => packets.cutExisting(ports),
  };
  for (const [fault, inject] of Object.entries(faults))
    test.skipIf(!canRun).concurrent(
      `the CNI service attaches pods within 20 s after ${fault}`,
      async () => {
        await using served = await ServedHost.on(cluster);
        const { host, conf } = served;
        const packets = new PacketDrop(host.name);
        const add = async (): Promise<void> => {
          const call = await served.makePod(`pod-${randomBytes(3).toString("hex")}`);
          const pod = host.pod();
          await pollUntil(
            async () => (await host.add(pod, { conf, ...call })).code,
            (code) => code === 0,
            RECOVERY_MS,
          );
        };
        await add();
        await inject(packets, [served.forwarder.port]);
        const started = performance.now();
        await add();
        const seconds = (performance.now() - started) / 1000;
        console.log(`CNI on Kubernetes, ${fault}: ${seconds.toFixed(1)} s`);
        expect(seconds).toBeLessThan(RECOVERY_MS / 1000);
      },
      TIMEOUT_MS,
    );
});
