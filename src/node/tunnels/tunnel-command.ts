// Implements calico-node -allocate-tunnel-addrs: assigns tunnel addresses once, or whenever a pool or this node changes.
import { Client, type Datastore, type Environment, type SyncerSink } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { backoffDelay, pause } from "../../lib/retry.ts";
import { ignoreUnreadable, readNode, type Resource } from "../../model/index.ts";
import { FatalNodeError } from "../failure.ts";
import { openNodeDatastore } from "../node-datastore.ts";
import { runMode } from "../mode.ts";
import { openNodeSyncer } from "../node-syncer.ts";
import { runUntilSignal } from "../signals.ts";
import { reconcileTunnelAddresses } from "./tunnel-addresses.ts";

export function allocateTunnelAddresses({ once }: { readonly once: boolean }): Promise<number> {
  return runMode("tunnel address allocation failed", async (log) => {
    const node = process.env["NODENAME"] ?? "";
    if (node === "") throw new FatalNodeError("NODENAME environment is not set");
    await runUntilSignal(async (signal) => {
      const retry = once ? {} : { retryUntil: signal };
      await using opened = await openNodeDatastore(process.env, { log, ...retry });
      if (opened.usesPodCidrs) return; // pod addresses come from the nodes' pod CIDRs
      if (once) await reconcileTunnelAddresses(tunnelInputs(opened.store, node, log));
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

export interface WatchTunnelsOptions {
  readonly env: Environment;
  readonly store: Datastore;
  readonly node: string;
  readonly log: Logger;
}

/** Watches pools and this node until the signal aborts; a failed reconciliation is logged and retried. */
export async function watchTunnels(options: WatchTunnelsOptions, signal: AbortSignal): Promise<void> {
  const { store, node, log } = options;
  const inputs = tunnelInputs(store, node, log, signal);
  const trigger = new ReconcileTrigger();
  const syncer = (await openNodeSyncer("tunnel-ip-allocation", options)).run(sinkFor(node, trigger), signal);
  let failures = 0;
  const work = (async () => {
    while (await trigger.wait(signal))
      try {
        await reconcileTunnelAddresses(inputs);
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        log.warn("could not reconcile tunnel addresses, retrying", { error: describeError(error) });
        await pause(backoffDelay(BACKOFF, failures++), signal);
        trigger.fire();
      }
  })();
  await Promise.all([syncer, work]);
}

function sinkFor(node: string, trigger: ReconcileTrigger): SyncerSink {
  let inSync = false;
  let lastNode = "";
  return {
    onStatus: (status) => {
      if (status !== "in-sync") return;
      inSync = true;
      trigger.fire();
    },
    onUpdates: (updates) => {
      let changed = false;
      for (const { key, value } of updates) {
        if (key.type === "pool") changed = true;
        if (key.type !== "resource" || key.kind !== "Node" || key.name !== node) continue;
        const read = value === undefined ? undefined : readNode(value as Resource, ignoreUnreadable);
        const now = JSON.stringify([read?.wireguardKeys, read?.labels]);
        if (now !== lastNode) changed = true;
        lastNode = now;
      }
      if (changed && inSync) trigger.fire();
    },
  };
}

/** Combines all calls of `fire` during one reconciliation into one. */
class ReconcileTrigger {
  #pending = false;
  #wake: (() => void) | undefined;

  fire(): void {
    this.#pending = true;
    this.#wake?.();
  }

  /** Waits for `fire`. @returns false if the signal aborted */
  async wait(signal: AbortSignal): Promise<boolean> {
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
