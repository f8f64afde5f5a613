// One API server for all files of a run that need nothing special of it: starting one and teaching it our definitions
// costs seconds of two cores. A file holds it alone; when it gives it back, whatever it wrote is taken back in etcd
// itself, below the API server, which learns of that as of any other change. It ends with the process.
import { truncateSync } from "node:fs";
import type { ApiServer } from "./api-server.ts";

export interface Lease<Knowledge> {
  readonly server: ApiServer;
  /** What was learned of the server when it was prepared. */
  readonly knowledge: Knowledge;
  giveBack(): Promise<void>;
}

interface Prepared<Knowledge> {
  readonly server: ApiServer;
  readonly knowledge: Knowledge;
  /** What stood there then, with the revisions it has now. */
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

/** Test files have modules of their own, and one process. */
const HOME = Symbol.for("calico-ts shared API server");
const home = globalThis as { [HOME]?: Shared };

const READY_WITHIN_MS = 10_000;

/** What the API server writes for itself, all the time. */
const ITS_OWN = new RegExp(
  [
    "^/registry/(masterleases|events|apiregistration\\.k8s\\.io|flowschemas|prioritylevelconfigurations)/",
    "^/registry/leases/kube-system/apiserver-",
    "^/registry/(services/endpoints|endpointslices)/default/kubernetes$",
    "legacy-service-account-token-tracking$",
  ].join("|"),
);

/**
 * The one server, made when it is first wanted; undefined while somebody else of this process holds it.
 * @param prepare teaches a new one what every file may rely on
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
    const giveBack = async (): Promise<void> => {
      try {
        await restore(prepared);
      } catch (error) {
        // A test that ended in the middle of a restart leaves it so: the next file gets another.
        console.error(`the shared API server is given up: ${String(error)}`);
        shared.prepared = undefined;
        await prepared.server[Symbol.asyncDispose]();
      } finally {
        shared.isTaken = false;
      }
    };
    return { server: prepared.server, knowledge: prepared.knowledge, giveBack };
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
  const extra = [...now.keys()].filter((key) => !baseline.has(key) && !ITS_OWN.test(key));
  const changed = [...baseline].filter(
    ([key, { revision }]) => now.get(key)?.revision !== revision && !ITS_OWN.test(key),
  );
  const operations = [
    ...extra.map((key) => ({ requestDeleteRange: { key: encode(key) } })),
    ...changed.map(([key, { value }]) => ({ requestPut: { key: encode(key), value } })),
  ];
  for (let i = 0; i < operations.length; i += 100) await ask(server, "txn", { success: operations.slice(i, i + 100) });
  const after = changed.length === 0 ? now : await read(server, { withValues: false });
  for (const [key, { value }] of changed) baseline.set(key, { value, revision: after.get(key)?.revision ?? "" });
  truncateSync(server.auditLog);
  const answer = await fetch(`${server.url}/readyz`, {
    headers: { authorization: `Bearer ${server.adminToken}` },
    tls: { rejectUnauthorized: false },
    signal: AbortSignal.timeout(READY_WITHIN_MS),
  });
  if (!answer.ok) throw new Error(`readyz says ${answer.status}`);
}

interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly mod_revision: string;
}

/** Everything the API server keeps; values as etcd's gateway has them. */
async function read(server: ApiServer, options: { readonly withValues: boolean }): Promise<Map<string, Stored>> {
  const answer = (await ask(server, "range", {
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

async function ask(server: ApiServer, what: string, body: object): Promise<unknown> {
  const answer = await fetch(`${server.etcdUrl}/v3/kv/${what}`, { method: "POST", body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`etcd ${what}: ${await answer.text()}`);
  return answer.json();
}

const encode = (text: string): string => Buffer.from(text).toString("base64");
