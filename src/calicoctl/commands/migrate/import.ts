// Implements `calicoctl datastore migrate import`, which stores the output of `export` in the Kubernetes API. It rejects a
// cluster that already has Calico data, apart from Kubernetes policies and the built-in tiers.
import { type Entry, installCustomResourceDefinitions, NotFound } from "../../../datastore/index.ts";
import { isJsonObject, parseLosslessJson, stringifyLosslessJson } from "../../../lib/encoding/lossless-json.ts";
import { decodeValue, KUBERNETES_POLICY_PREFIX, parseStoredPath, withSpecFields } from "../../../model/index.ts";
import { apply } from "../../resources/actions.ts";
import { loadConfig, type OpenStore, openStore } from "../../resources/client.ts";
import type { CommandIo } from "../../../lib/command-line/io.ts";
import type { Call } from "../../table/flags.ts";
import type { importGrammar } from "../../table/datastore.ts";
import { Failure } from "../../command-line/failure.ts";
import { readSources, type Source } from "../../input/files.ts";
import { parseResources } from "../../input/resources.ts";
import {
  clusterInformation,
  type IpamEntry,
  type IpamExport,
  isLocked,
  MIGRATED_KINDS,
  PART_SEPARATOR,
  setReady,
} from "./shared.ts";
import { describe } from "../../resources/results.ts";

export async function run(call: Call<typeof importGrammar>): Promise<number> {
  const { io, flags } = call;
  const { filename } = flags;
  const config = await loadConfig(call);
  if (config.type !== "kubernetes")
    throw new Failure(
      `Invalid datastore type: ${config.type} to import to for datastore migration. Datastore type must be kubernetes`,
    );
  const [source] = readSources(filename, { recursive: false }, io);
  if (source === undefined) throw new Failure(`No resources specified in file ${filename}`);
  await installCustomResourceDefinitions(config);
  await using store = await openStore(call, { requests: "many" });
  await importExport(store, source, io);
  return 0;
}

/** Reads everything before the first write, and fails if the datastore already has data. */
export async function importExport(
  store: OpenStore,
  source: Source,
  io: Pick<CommandIo, "out" | "err">,
): Promise<void> {
  const parts = source.text.split(PART_SEPARATOR);
  const [resources, information, ipam] = parts;
  if (resources === undefined || information === undefined || ipam === undefined || parts.length !== 3)
    throw new Failure(
      `${source.file} is not an export: want three parts separated by ===; run \`datastore migrate export\` again`,
    );
  const inputs = await parseResources({ file: source.file, text: resources }, io.err);
  const entries = ipamEntries(parseLosslessJson(ipam) as unknown as IpamExport).map(storedEntry);
  await rejectExistingData(store);
  await store.ensureInitialized();
  if (!isLocked(await clusterInformation(store))) await setReady(store, false);

  const faults: string[] = [];
  let skipped = 0;
  for (const input of inputs)
    try {
      await apply(store, input.resource);
    } catch (error) {
      if (!(input.kind === "Node" && error instanceof NotFound)) {
        faults.push(describe(error, input));
        continue;
      }
      io.out(`[WARNING] Skipped node ${input.resource.metadata.name}: Kubernetes has no such node\n`);
      skipped++;
    }
  if (faults.length > 0) throw new Failure(`Failed to import v3 resources: Hit error(s): [${faults.join("; ")}]`);
  io.out(`Successfully applied ${inputs.length - skipped} resource(s)\n`);
  await adoptIdentity(store, information);

  io.out("Importing IPAM resources\n");
  for (const entry of entries) await store.datastore.apply(entry);
  io.out(`Successfully applied ${entries.length} IPAM resource(s)\n`);
  io.out(
    "Datastore information successfully imported. Please refer to the datastore migration documentation for next steps.\n",
  );
}

async function rejectExistingData(store: OpenStore): Promise<void> {
  const failure = (what: string) =>
    new Failure(
      `Datastore already has Calico resources: Found existing ${what}. Clear them out by deleting all Calico CRDs.`,
    );
  for (const kind of MIGRATED_KINDS) {
    if (kind === "Node") continue; // Kubernetes creates the nodes
    const { items } = await store.list({ kind });
    const existing = items.filter(({ metadata: { name } }) => {
      if (kind === "Tier") return !["default", "kube-admin", "kube-baseline"].includes(name);
      return !(kind === "NetworkPolicy" && name.startsWith(KUBERNETES_POLICY_PREFIX));
    });
    if (existing.length > 0) throw failure(`Calico ${kind} resource`);
  }
  for (const type of ["block", "blockAffinity", "ipamHandle"] as const)
    if ((await store.datastore.list({ type })).items.length > 0) throw failure("IPAM resources");
}

/** Copies the GUID and the version of the cluster, so that it remains the same cluster. */
async function adoptIdentity(store: OpenStore, exported: string): Promise<void> {
  const old = parseLosslessJson(exported);
  const spec = isJsonObject(old) ? old["spec"] : undefined;
  const current = await clusterInformation(store);
  if (current === undefined || !isJsonObject(spec)) throw new Failure("the export contains no ClusterInformation");
  const { clusterGUID, calicoVersion } = spec;
  await store.update(
    withSpecFields(current, {
      ...(clusterGUID === undefined ? {} : { clusterGUID }),
      ...(calicoVersion === undefined ? {} : { calicoVersion }),
    }),
  );
}

function ipamEntries(ipam: IpamExport): IpamEntry[] {
  const config = ipam.config === undefined ? [] : [ipam.config];
  return [...(ipam.block_affinities ?? []), ...(ipam.blocks ?? []), ...(ipam.handles ?? []), ...config];
}

function storedEntry(entry: IpamEntry): Entry {
  const key = parseStoredPath(entry.Key);
  if (key === undefined) throw new Failure(`the export contains ${entry.Key}, which is not a key of IPAM`);
  return { key, value: decodeValue(key, stringifyLosslessJson(entry.Value)) };
}
