// Keeps the Node resource's addresses up to date: detects them periodically and writes changes.
import { Client, Conflict, type Datastore } from "../../datastore/index.ts";
import { createLogger, describeError, type Logger, type LogRecord } from "../../lib/log/log.ts";
import { pause } from "../../lib/retry.ts";
import { FatalNodeError } from "../failure.ts";
import { readHostInterfaces } from "./host-interfaces.ts";
import { findKubernetes, readFacts } from "./kubernetes-facts.ts";
import { configureAddresses, findConflict } from "./node-addresses.ts";
import type { NodeSettings } from "../settings.ts";
import { findNode } from "./startup.ts";

const WRITE_ATTEMPTS = 3;

export async function monitorAddresses(
  store: Datastore,
  node: string,
  settings: NodeSettings,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  const client = new Client(store, { log });
  const changes = logChangesOnly(log);
  while (!signal.aborted) {
    await pause(settings.pollIntervalMs, signal);
    if (signal.aborted) return;
    try {
      await checkAddresses(client, node, settings, changes.log);
    } catch (error) {
      changes.log.warn("could not check the node's addresses", { error: describeError(error) });
    }
    changes.endRound();
  }
}

/** Suppresses records that were also logged in the previous round. */
function logChangesOnly(log: Logger): { readonly log: Logger; endRound(): void } {
  let records: LogRecord[] = [];
  let previous = new Set<string>();
  const textOf = ({ level, message, fields }: LogRecord) => JSON.stringify([level, message, fields]);
  return {
    log: createLogger({ level: "debug", write: (record) => records.push(record) }),
    endRound: () => {
      for (const record of records) if (!previous.has(textOf(record))) log[record.level](record.message, record.fields);
      previous = new Set(records.map(textOf));
      records = [];
    },
  };
}

/** @returns whether the Node was written */
export async function checkAddresses(
  client: Client,
  name: string,
  settings: NodeSettings,
  log: Logger,
): Promise<boolean> {
  for (let attempt = 1; ; attempt++) {
    const node = await findNode(client, name);
    if (node === undefined) throw new FatalNodeError(`Node ${name} does not exist`);
    const api = await findKubernetes(settings.env);
    const facts = api === undefined ? undefined : await readFacts(api, settings.kubernetesNode ?? name);
    const { spec, changed } = await configureAddresses(node.spec, {
      settings,
      interfaces: readHostInterfaces(),
      kubernetesAddresses: facts?.internalAddresses,
      log,
    });
    if (!changed) return false;
    if (settings.checksConflicts) {
      const others = (await client.list({ kind: "Node" })).items;
      const conflict = findConflict(
        name,
        spec,
        others.map((other) => ({ name: other.metadata.name, spec: other.spec })),
      );
      if (conflict !== undefined)
        throw new FatalNodeError(`Node ${conflict.node} also has ${conflict.address}; this node keeps its old address`);
    }
    try {
      await client.update({ ...node, spec });
      log.info("updated the node's addresses", { addresses: spec.bgp });
      return true;
    } catch (error) {
      if (!(error instanceof Conflict) || attempt >= WRITE_ATTEMPTS) throw error;
    }
  }
}
