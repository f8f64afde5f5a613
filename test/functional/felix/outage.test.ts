// The agent on a network that loses packets without a reset. The cases wait for most of their time, so all run at once.
import { describe, test } from "bun:test";
import { canCutPaths } from "../../support/cut-path.ts";
import { AgentBehindPath, RECOVERY_MS, surviveBlackHole, surviveCut } from "../../support/outage.ts";

const CUT_SECONDS = 40;
const TIMEOUT_MS = 180_000;

describe.skipIf(!canCutPaths || Bun.which("etcd") === null)("the agent on etcd", () => {
  for (const tls of [false, true])
    test.concurrent(
      `is up to date within 20 s after packets were dropped for ${CUT_SECONDS} s${tls ? " (TLS)" : ""}`,
      async () => {
        await using agent = await AgentBehindPath.onEtcd({ tls });
        console.log(`etcd, cut of ${CUT_SECONDS} s: ${(await surviveCut(agent, CUT_SECONDS)).toFixed(1)} s`);
      },
      TIMEOUT_MS,
    );

  test.concurrent(
    "replaces connections whose packets are dropped for good within 20 s",
    async () => {
      await using agent = await AgentBehindPath.onEtcd();
      console.log(`etcd, black hole: ${(await surviveBlackHole(agent)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(!canCutPaths || Bun.which("etcd") === null)("the agent on etcd with two endpoints", () => {
  test.concurrent(
    "continues on the second within 20 s after packets to the first are dropped for good",
    async () => {
      await using agent = await AgentBehindPath.onEtcd({ endpoints: 2 });
      agent.path.cut(agent.endpoints[0]);
      await agent.addNode();
      console.log(`etcd, endpoint lost: ${(await agent.catchUp(RECOVERY_MS)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(!canCutPaths)("the agent on Typha", () => {
  test.concurrent(
    `is up to date within 20 s after packets were dropped for ${CUT_SECONDS} s`,
    async () => {
      await using agent = await AgentBehindPath.onTypha();
      console.log(`Typha, cut of ${CUT_SECONDS} s: ${(await surviveCut(agent, CUT_SECONDS)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "replaces connections whose packets are dropped for good within 20 s",
    async () => {
      await using agent = await AgentBehindPath.onTypha();
      console.log(`Typha, black hole: ${(await surviveBlackHole(agent)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );
});
