// Keeps the Node's addresses equal to the host's: looks again every now and then, and writes what changed.
import { Client, Conflict, type Datastore } from "../../datastore/index.ts";
import { createLogger, describeError, type Logger, type LogRecord } from "../../lib/log/log.ts";
import { pause } from "../../lib/retry.ts";
import { NodeFailure } from "../failure.ts";
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
  const news = newsOnly(log);
  while (!signal.aborted) {
    await pause(settings.pollIntervalMs, signal);
    if (signal.aborted) return;
    try {
      await checkAddresses(client, node, settings, news.log);
    } catch (error) {
      news.log.warn("the node's addresses could not be checked", { error: describeError(error) });
    }
    news.tell();
  }
}

/** What was found at the look before too is not told again. */
function newsOnly(log: Logger): { readonly log: Logger; tell(): void } {
  let found: LogRecord[] = [];
  let before = new Set<string>();
  const textOf = ({ level, message, fields }: LogRecord) => JSON.stringify([level, message, fields]);
  return {
    log: createLogger({ level: "debug", write: (record) => found.push(record) }),
    tell: () => {
      for (const record of found) if (!before.has(textOf(record))) log[record.level](record.message, record.fields);
      before = new Set(found.map(textOf));
      found = [];
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
    if (node === undefined) throw new NodeFailure(`there is no Node ${name}`);
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
        throw new NodeFailure(`Node ${conflict.node} has ${conflict.address} too: this node keeps its old address`);
    }
    try {
      await client.update({ ...node, spec });
      log.info("the node's addresses changed", { addresses: spec.bgp });
      return true;
    } catch (error) {
      if (!(error instanceof Conflict) || attempt >= WRITE_ATTEMPTS) throw error;
    }
  }
}
