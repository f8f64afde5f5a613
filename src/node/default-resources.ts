// What every cluster has once its first node has started: its identity, tiers and default configurations. Many nodes
// start at once, so finding them made by another is fine.
import { AlreadyExists, type Client, Conflict, NotFound } from "../datastore/index.ts";
import { BUILD, VERSION_ANNOTATION } from "../lib/build.ts";
import { API_VERSION, type KindName, type Resource } from "../model/index.ts";

export interface ClusterInputs {
  readonly clusterType: string;
  readonly version: string;
}

export async function ensureDefaults(client: Client, node: string, inputs: ClusterInputs): Promise<void> {
  const recorded = mayRecord(await recordedVersion(client)) ? releaseVersion(inputs.version) : undefined;
  await client.ensureInitialized({
    clusterType: inputs.clusterType,
    ...(recorded !== undefined && { version: recorded }),
  });
  await fill(client, "FelixConfiguration", "default", { reportingInterval: "0s", logSeverityScreen: "Info" });
  if (client.store.name !== "kubernetes")
    await fill(client, "FelixConfiguration", `node.${node}`, { defaultEndpointToHostAction: "Return" });
  await fill(client, "BGPConfiguration", "default", {});
  await fill(client, "IPAMConfiguration", "default", {
    autoAllocateBlocks: true,
    strictAffinity: false,
    kubeVirtVMAddressPersistence: "Enabled",
  });
}

/**
 * The version to record as `spec.calicoVersion`. Clients refuse to work with a cluster of another version, so one that is no
 * release (0.x, built from source) is not recorded there: it would lock out the programs the cluster is shared with.
 */
export function releaseVersion(version: string): string | undefined {
  return /^v?[1-9]\d*\.\d+\.\d+/.test(version) ? version : undefined;
}

/** A cluster that the original's programs have marked as theirs is shared with them, and they insist on their version. */
export const mayRecord = (current: string | undefined): boolean =>
  current === undefined || !/^v?3\.\d+/.test(current) || /^v?3\./.test(BUILD.version);

/** Records the version of calico-ts that runs in the cluster, for `calicoctl version`. */
export async function recordVersion(client: Client, version = BUILD.version): Promise<void> {
  const current = await client.get({ kind: "ClusterInformation", name: "default" });
  const { annotations } = current.metadata;
  if (annotations?.[VERSION_ANNOTATION] === version) return;
  try {
    const metadata = { ...current.metadata, annotations: { ...annotations, [VERSION_ANNOTATION]: version } };
    await client.update({ ...current, metadata });
  } catch (error) {
    if (!(error instanceof Conflict)) throw error; // another node was faster
  }
}

async function recordedVersion(client: Client): Promise<string | undefined> {
  try {
    const { spec } = await client.get({ kind: "ClusterInformation", name: "default" });
    return spec.calicoVersion;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}

/** Creates the resource, or adds the fields it lacks; what somebody has set stays. */
async function fill(
  client: Client,
  kind: KindName,
  name: string,
  fields: Readonly<Record<string, unknown>>,
): Promise<void> {
  try {
    const current: Resource = await client.get({ kind, name });
    const spec = (current.spec ?? {}) as Readonly<Record<string, unknown>>;
    const missing = Object.entries(fields).filter(([field]) => spec[field] === undefined);
    if (missing.length === 0) return;
    await client.update({ ...current, spec: { ...spec, ...Object.fromEntries(missing) } });
  } catch (error) {
    if (error instanceof Conflict) return; // another node was faster
    if (!(error instanceof NotFound)) throw error;
    try {
      await client.create({ apiVersion: API_VERSION, kind, metadata: { name }, spec: fields });
    } catch (again) {
      if (!(again instanceof AlreadyExists)) throw again;
    }
  }
}
