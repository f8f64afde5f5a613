// Checks whether the API server really does not serve a kind, and notices when the definition (CRD) of such a kind is
// installed.
import { pause } from "../../lib/retry.ts";
import { NotServed } from "../errors.ts";
import type { KubeApi, KubeObject } from "./api-client.ts";
import type { Collection } from "./collection.ts";
import { Informer } from "./informer.ts";
import { KubeStatusError } from "./status-error.ts";

const DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/** The server serves a kind a moment after its definition is established. */
const SETTLE_MS = 500;
/** Interval between attempts for an account that may not watch definitions. */
const FALLBACK_POLL_MS = 60_000;

/** The definition that a kind needs, by the name and version of the CRD. */
export interface Definition {
  readonly name: string;
  readonly version: string;
}

/** The error for a request that was answered with 404 because the kind is not served. */
export function notServed(
  api: KubeApi,
  { kind, isOptional, definition }: Pick<Collection, "kind" | "isOptional" | "definition">,
  /** The path of the request. */
  path: string,
  cause: unknown,
): NotServed {
  return new NotServed(kind, {
    cause,
    isConfirmed: (signal) => isAbsentFromDiscovery(api, path, signal),
    isOptional: isOptional ?? false,
    untilServed: definition === undefined ? undefined : (signal) => untilEstablished(api, definition, signal),
  });
}

/**
 * Returns whether the API server's discovery documents show that it does not serve the resource under a path. The status
 * 404 and its body prove nothing, because every web server sends them. Resources of the core group are always served.
 */
async function isAbsentFromDiscovery(api: KubeApi, path: string, signal: AbortSignal): Promise<boolean> {
  const [, group, version, resource] = /^\/apis\/([^/]+)\/([^/]+)\/(?:namespaces\/[^/]+\/)?([^/]+)$/.exec(path) ?? [];
  if (group === undefined) return false;
  try {
    const { kind, groupVersion, resources } = await api.json<Partial<ApiResourceList>>({
      method: "GET",
      path: `/apis/${group}/${version}`,
      signal,
    });
    if (kind !== "APIResourceList" || groupVersion !== `${group}/${version}` || resources === undefined) return false;
    return !resources.some(({ name }) => name === resource);
  } catch (error) {
    // The API server answers with plain text for a group that it does not have; only the list of groups can be checked.
    if (!(error instanceof KubeStatusError && error.code === 404)) throw error;
  }
  const { kind, groups } = await api.json<Partial<ApiGroupList>>({ method: "GET", path: "/apis", signal });
  if (kind !== "APIGroupList" || groups === undefined || groups.length === 0) return false;
  return !groups.some(
    ({ name, versions }) => name === group && versions.some(({ version: served }) => served === version),
  );
}

/** The resources of one version of an API group. */
interface ApiResourceList {
  readonly kind: string;
  readonly groupVersion: string;
  readonly resources: readonly { readonly name: string }[];
}

interface ApiGroupList {
  readonly kind: string;
  readonly groups: readonly { readonly name: string; readonly versions: readonly { readonly version: string }[] }[];
}

async function untilEstablished(api: KubeApi, definition: Definition, signal: AbortSignal): Promise<void> {
  const found = new AbortController();
  const both = AbortSignal.any([signal, found.signal]);
  const definitions = new Informer({
    api,
    path: DEFINITIONS,
    only: { name: definition.name },
    keep: (object) => isEstablished(object, definition.version),
  });
  definitions.listen(({ after }) => {
    if (after === true) found.abort();
  });
  const polling = setInterval(() => {
    if (!definitions.hasSynced) found.abort();
  }, FALLBACK_POLL_MS);
  try {
    await definitions.run(both);
  } finally {
    clearInterval(polling);
  }
  await pause(SETTLE_MS, signal);
}

interface CustomResourceDefinition extends KubeObject {
  readonly spec?: { readonly versions?: readonly { readonly name?: string; readonly served?: boolean }[] };
  readonly status?: { readonly conditions?: readonly { readonly type?: string; readonly status?: string }[] };
}

function isEstablished({ spec, status }: CustomResourceDefinition, version: string): boolean {
  const hasVersion = spec?.versions?.some(({ name, served }) => name === version && served === true) ?? false;
  const conditions = status?.conditions ?? [];
  return hasVersion && conditions.some(({ type, status: value }) => type === "Established" && value === "True");
}
