// calico-node -allocate-tunnel-addrs: once, or whenever a pool or this node's keys change.
import { Client, type Datastore, type Environment, type SyncerSink } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { backoffDelay, pause } from "../../lib/retry.ts";
import { ignoreUnreadable, readNode, type Resource } from "../../model/index.ts";
import { NodeFailure } from "../failure.ts";
import { openNodeDatastore } from "../node-datastore.ts";
import { runMode } from "../mode.ts";
import { openNodeSyncer } from "../node-syncer.ts";
import { runUntilSignal } from "../signals.ts";
import { reconcileTunnels } from "./tunnel-addresses.ts";

export function allocateTunnelAddresses({ once }: { readonly once: boolean }): Promise<number> {
  return runMode("tunnel addresses could not be allocated", async (log) => {
    const node = process.env["NODENAME"] ?? "";
    if (node === "") throw new NodeFailure("NODENAME environment is not set");
    await runUntilSignal(async (signal) => {
      const retry = once ? {} : { retryUntil: signal };
      await using opened = await openNodeDatastore(process.env, { log, ...retry });
      if (opened.usesPodCidrs) return; // addresses come from the nodes' own ranges
      if (once) await reconcileTunnels(tunnelInputs(opened.store, node, log));
      else await watchTunnels({ env: process.env, store: opened.store, node, log }, signal);
    });
  });
}

const tunnelInputs = (store: Datastore, node: string, log: Logger, signal?: AbortSignal) => ({
  client: new Client(store, { log }),
  ipam: new Ipam({ datastore: store, log }),
  node,
  log,
  ...(signal && { signal }),
});

const BACKOFF = { firstMs: 250, maxMs: 30_000, jitter: 0.2 };

export interface TunnelsGiven {
  readonly env: Environment;
  readonly store: Datastore;
  readonly node: string;
  readonly log: Logger;
}

/** Follows pools and this node until the signal; a failure is told and tried again. */
export async function watchTunnels(given: TunnelsGiven, signal: AbortSignal): Promise<void> {
  const { store, node, log } = given;
  const inputs = tunnelInputs(store, node, log, signal);
  const wishes = new Wishes();
  const syncer = (await openNodeSyncer("tunnel-ip-allocation", given)).run(sinkFor(node, wishes), signal);
  let failures = 0;
  const work = (async () => {
    while (await wishes.next(signal))
      try {
        await reconcileTunnels(inputs);
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        log.warn("tunnel addresses could not be brought in order, trying again", { error: describeError(error) });
        await pause(backoffDelay(BACKOFF, failures++), signal);
        wishes.add();
      }
  })();
  await Promise.all([syncer, work]);
}

function sinkFor(node: string, wishes: Wishes): SyncerSink {
  let inSync = false;
  let keys = "";
  return {
    onStatus: (status) => {
      if (status !== "in-sync") return;
      inSync = true;
      wishes.add();
    },
    onUpdates: (updates) => {
      let changed = false;
      for (const { key, value } of updates) {
        if (key.type === "pool") changed = true;
        if (key.type !== "resource" || key.kind !== "Node" || key.name !== node) continue;
        const read = value === undefined ? undefined : readNode(value as Resource, ignoreUnreadable);
        const now = JSON.stringify([read?.wireguardKeys, read?.labels]);
        if (now !== keys) changed = true;
        keys = now;
      }
      if (changed && inSync) wishes.add();
    },
  };
}

/** Many wishes while one is being worked on are one. */
class Wishes {
  #pending = false;
  #wake: (() => void) | undefined;

  add(): void {
    this.#pending = true;
    this.#wake?.();
  }

  /** True when there is one; false at the end. */
  async next(signal: AbortSignal): Promise<boolean> {
    while (!this.#pending && !signal.aborted)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
    this.#wake = undefined;
    this.#pending = false;
    return !signal.aborted;
  }
}
