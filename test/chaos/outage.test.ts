// Tests node agents on a network that drops packets for one minute and for more than three, without resets.
import { afterAll, beforeAll, describe, test } from "bun:test";
import { type Cluster, isAvailable, startCluster } from "../kubernetes/cluster.ts";
import { canCutPaths } from "../support/cut-path.ts";
import { AgentBehindPath, surviveCut } from "../support/outage.ts";

const TIMEOUT_MS = 400_000;

describe.skipIf(!canCutPaths)("after packets were dropped, an update is received within 20 s", () => {
  let cluster: Cluster | undefined;
  beforeAll(async () => {
    if (isAvailable) cluster = await startCluster();
  }, 600_000);
  afterAll(async () => await cluster?.[Symbol.asyncDispose]());

  const agents: Readonly<Record<string, () => Promise<AgentBehindPath>>> = {
    etcd: () => AgentBehindPath.onEtcd(),
    "etcd with TLS": () => AgentBehindPath.onEtcd({ tls: true }),
    Typha: () => AgentBehindPath.onTypha(),
    ...(isAvailable && {
      Kubernetes: () => {
        if (cluster === undefined) throw new Error("the cluster did not start");
        return AgentBehindPath.onKubernetes(cluster);
      },
    }),
  };
  for (const [name, start] of Object.entries(agents))
    for (const seconds of [60, 200])
      test.concurrent(
        `${name}, ${seconds} s`,
        async () => {
          await using agent = await start();
          console.log(`${name}, cut of ${seconds} s: ${(await surviveCut(agent, seconds)).toFixed(1)} s`);
        },
        TIMEOUT_MS,
      );
});
