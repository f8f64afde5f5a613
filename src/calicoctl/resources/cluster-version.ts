// Checks whether calicoctl supports a cluster of a given version: its own version, or a Calico release with the same data
// formats. Programs of other versions may use other formats, so such clusters are rejected unless the user overrides it.

/** The first supported Calico release. Later releases of the same major version keep the formats of stored objects. */
const CALICO = { major: 3, firstMinor: 28 };

export interface VersionCheck {
  readonly client: string;
  readonly cluster: string;
  readonly isSupported: boolean;
  /** The supported versions, as text. */
  readonly required: string;
}

/** @param cluster `ClusterInformation.spec.calicoVersion` */
export function checkClusterVersion(client: string, cluster: string): VersionCheck {
  const [own, theirs] = [release(client), release(cluster)];
  const isSame = plainVersion(client) === plainVersion(cluster);
  const isSameMinor =
    own !== undefined && theirs !== undefined && own.major === theirs.major && own.minor === theirs.minor;
  const isCalico = theirs?.major === CALICO.major && theirs.minor >= CALICO.firstMinor;
  const ownRelease = own === undefined ? plainVersion(client) : `${own.major}.${own.minor}`;
  return {
    client: plainVersion(client),
    cluster: plainVersion(cluster),
    isSupported: isSame || isSameMinor || isCalico,
    required: `a cluster of version ${ownRelease}, or of Calico ${CALICO.major}.${CALICO.firstMinor} or later`,
  };
}

function release(version: string): { readonly major: number; readonly minor: number } | undefined {
  const [, major, minor] = /^(\d+)\.(\d+)(?:\.|$)/.exec(plainVersion(version)) ?? [];
  return major === undefined ? undefined : { major: Number(major), minor: Number(minor) };
}

/** Removes the leading `v` and everything from the first dash on. */
const plainVersion = (version: string): string => version.replace(/^v/, "").replace(/-.*$/, "");
