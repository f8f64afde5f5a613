// What `scripts/build.ts` stamped into the executable; a run from source says so.
declare const BUILD_VERSION: string | undefined;
declare const BUILD_COMMIT: string | undefined;

export const BUILD = {
  version: typeof BUILD_VERSION === "string" ? BUILD_VERSION : "v0.0.0-source",
  isSource: typeof BUILD_VERSION !== "string",
  commit: typeof BUILD_COMMIT === "string" ? BUILD_COMMIT : "unknown",
} as const;

/**
 * Annotation of ClusterInformation: the version of calico-ts that last started a node. Not in `spec.calicoVersion`, by which
 * Calico's calicoctl refuses to work with clusters of other versions than its own.
 */
export const VERSION_ANNOTATION = "projectcalico.org/calico-ts-version";
