// Whether this program may work on a cluster of that version. Clusters are shared with the original: those of its
// releases whose objects we know are as good as our own. Anything else could read and write things differently, and
// is refused unless the user says otherwise.

/** Releases of the original that ours is compared with, object by object; later ones of the same major keep them. */
const ORIGINAL = { major: 3, firstMinor: 28 };

export interface VersionVerdict {
  readonly client: string;
  readonly cluster: string;
  readonly fits: boolean;
  /** What would fit, in words. */
  readonly wanted: string;
}

/** @param cluster `ClusterInformation.spec.calicoVersion` */
export function judgeClusterVersion(client: string, cluster: string): VersionVerdict {
  const [ours, theirs] = [release(client), release(cluster)];
  const same = plainVersion(client) === plainVersion(cluster);
  const ownLine =
    ours !== undefined && theirs !== undefined && ours.major === theirs.major && ours.minor === theirs.minor;
  const original = theirs?.major === ORIGINAL.major && theirs.minor >= ORIGINAL.firstMinor;
  const own = ours === undefined ? plainVersion(client) : `${ours.major}.${ours.minor}`;
  return {
    client: plainVersion(client),
    cluster: plainVersion(cluster),
    fits: same || ownLine || original,
    wanted: `a cluster of ${own}, or of Calico ${ORIGINAL.major}.${ORIGINAL.firstMinor} or later`,
  };
}

function release(version: string): { readonly major: number; readonly minor: number } | undefined {
  const [, major, minor] = /^(\d+)\.(\d+)(?:\.|$)/.exec(plainVersion(version)) ?? [];
  return major === undefined ? undefined : { major: Number(major), minor: Number(minor) };
}

/** Without the leading `v` and whatever follows the first dash. */
const plainVersion = (version: string): string => version.replace(/^v/, "").replace(/-.*$/, "");
