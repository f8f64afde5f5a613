// Records the version of calico-ts in the cluster's ClusterInformation.
import { BUILD, VERSION_ANNOTATION } from "../../lib/process/build.ts";
import { Conflict, NotFound } from "../errors.ts";
import type { Client } from "./client.ts";
import type { ClusterFacts } from "./ensure-initialized.ts";

/**
 * Returns the version to record as `spec.calicoVersion`, or undefined for a version that is not a release (0.x, built from
 * source). calicoctl rejects a cluster of another version, so such a version would lock out Calico's calicoctl.
 */
export function releaseVersion(version: string): string | undefined {
  return /^v?[1-9]\d*\.\d+\.\d+/.test(version) ? version : undefined;
}

/** A cluster whose version was recorded by Calico is shared with Calico's programs, which require their own version. */
export const mayRecordVersion = (current: string | undefined): boolean =>
  current === undefined || !/^v?3\.\d+/.test(current) || /^v?3\./.test(BUILD.version);

/** Returns the version for `ensureInitialized`, if one may be recorded. */
export async function versionToRecord(
  client: Client,
  version: string = BUILD.version,
): Promise<Pick<ClusterFacts, "version">> {
  const release = mayRecordVersion(await recordedVersion(client)) ? releaseVersion(version) : undefined;
  return release === undefined ? {} : { version: release };
}

/** Records the version of calico-ts that runs in the cluster, for `calicoctl version`. */
export async function recordVersion(client: Client, version: string = BUILD.version): Promise<void> {
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
