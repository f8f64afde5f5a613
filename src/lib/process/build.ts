// Version and commit, which `scripts/build.ts` compiles into the executable.
declare const BUILD_VERSION: string | undefined;
declare const BUILD_COMMIT: string | undefined;

export const BUILD = {
  version: typeof BUILD_VERSION === "string" ? BUILD_VERSION : "v0.0.0-source",
  isSource: typeof BUILD_VERSION !== "string",
  commit: typeof BUILD_COMMIT === "string" ? BUILD_COMMIT : "unknown",
} as const;

/**
 * Annotation of ClusterInformation with the version of calico-ts that last started a node. The version is not stored in
 * `spec.calicoVersion`, because Calico's calicoctl rejects clusters whose version there differs from its own.
 */
export const VERSION_ANNOTATION = "projectcalico.org/calico-ts-version";
