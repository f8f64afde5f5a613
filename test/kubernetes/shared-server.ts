// Shares one API server among the test files of a run, because starting a server and installing the definitions takes
// seconds on two cores. One file uses it at a time. When the file releases it, all of its writes are undone directly in
// etcd, and the API server sees this as ordinary changes. The server ends with the process.
import { truncateSync } from "node:fs";
import type { ApiServer } from "./api-server.ts";

export interface Lease<Knowledge> {
  readonly server: ApiServer;
  /** The result of `prepare`. */
  readonly knowledge: Knowledge;
  release(): Promise<void>;
}

interface Prepared<Knowledge> {
  readonly server: ApiServer;
  readonly knowledge: Knowledge;
  /** The contents of etcd after `prepare`, with present revisions. */
  readonly baseline: Map<string, Stored>;
}
interface Stored {
  readonly value: string;
  readonly revision: string;
}
interface Shared {
  prepared?: Prepared<unknown>;
  isTaken: boolean;
}

/** The server is stored globally, because test files share a process but not their modules. */
const HOME = Symbol.for("calico-ts shared API server");
const home = globalThis as { [HOME]?: Shared };

const READY_WITHIN_MS = 10_000;

/** Keys that the API server itself writes all the time. */
const SERVER_KEYS = new RegExp(
  [
    "^/registry/(masterleases|events|apiregistration\\.k8s\\.io|flowschemas|prioritylevelconfigurations)/",
    "^/registry/leases/kube-system/apiserver-",
    "^/registry/(services/endpoints|endpointslices)/default/kubernetes$",
    "legacy-service-account-token-tracking$",
  ].join("|"),
);

/**
 * Returns the shared server, which is started on first use; undefined while another test file uses it.
 * @param prepare sets up a new server with what every file relies on
 */
export async function leaseServer<Knowledge>(
  start: () => Promise<ApiServer>,
  prepare: (server: ApiServer) => Promise<Knowledge>,
): Promise<Lease<Knowledge> | undefined> {
  const shared = (home[HOME] ??= { isTaken: false });
  if (shared.isTaken) return undefined;
  shared.isTaken = true;
  try {
    const prepared = (shared.prepared ?? (await make(start, prepare))) as Prepared<Knowledge>;
    shared.prepared = prepared;
    const release = async (): Promise<void> => {
      try {
        await restore(prepared);
      } catch (error) {
        // For instance after a test that ended during a restart of the server: the next file gets a new one.
        console.error(`discarding the shared API server: ${String(error)}`);
        shared.prepared = undefined;
        await prepared.server[Symbol.asyncDispose]();
      } finally {
        shared.isTaken = false;
      }
    };
    return { server: prepared.server, knowledge: prepared.knowledge, release };
  } catch (error) {
    shared.isTaken = false;
    throw error;
  }
}

async function make<Knowledge>(
  start: () => Promise<ApiServer>,
  prepare: (server: ApiServer) => Promise<Knowledge>,
): Promise<Prepared<Knowledge>> {
  const server = await start();
  try {
    const knowledge = await prepare(server);
    server.unref();
    return { server, knowledge, baseline: await read(server, { withValues: true }) };
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw error;
  }
}

async function restore({ server, baseline }: Prepared<unknown>): Promise<void> {
  const now = await read(server, { withValues: false });
  const extra = [...now.keys()].filter((key) => !baseline.has(key) && !SERVER_KEYS.test(key));
  const changed = [...baseline].filter(
    ([key, { revision }]) => now.get(key)?.revision !== revision && !SERVER_KEYS.test(key),
  );
  const operations = [
    ...extra.map((key) => ({ requestDeleteRange: { key: encode(key) } })),
    ...changed.map(([key, { value }]) => ({ requestPut: { key: encode(key), value } })),
  ];
  for (let i = 0; i < operations.length; i += 100)
    await request(server, "txn", { success: operations.slice(i, i + 100) });
  const after = changed.length === 0 ? now : await read(server, { withValues: false });
  for (const [key, { value }] of changed) baseline.set(key, { value, revision: after.get(key)?.revision ?? "" });
  truncateSync(server.auditLog);
  const answer = await fetch(`${server.url}/readyz`, {
    headers: { authorization: `Bearer ${server.adminToken}` },
    tls: { rejectUnauthorized: false },
    signal: AbortSignal.timeout(READY_WITHIN_MS),
  });
  if (!answer.ok) throw new Error(`/readyz returned status ${answer.status}`);
}

interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly mod_revision: string;
}

/** Reads all keys of the API server; values are base64, as in etcd's gateway. */
async function read(server: ApiServer, options: { readonly withValues: boolean }): Promise<Map<string, Stored>> {
  const answer = (await request(server, "range", {
    key: encode("/registry/"),
    range_end: encode("/registry0"),
    keys_only: !options.withValues,
  })) as { kvs?: readonly KeyValue[] };
  return new Map(
    (answer.kvs ?? []).map(({ key, value = "", mod_revision: revision }) => [
      Buffer.from(key, "base64").toString("utf8"),
      { value, revision },
    ]),
  );
}

async function request(server: ApiServer, what: string, body: object): Promise<unknown> {
  const answer = await fetch(`${server.etcdUrl}/v3/kv/${what}`, { method: "POST", body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`etcd ${what}: ${await answer.text()}`);
  return answer.json();
}

const encode = (text: string): string => Buffer.from(text).toString("base64");
