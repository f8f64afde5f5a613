// Notices when the definition (CRD) of a kind is installed that the API server does not serve yet.
import { pause } from "../../lib/retry.ts";
import { NotServed } from "../errors.ts";
import type { KubeApi, KubeObject } from "./api-client.ts";
import type { Collection } from "./collection.ts";
import { Informer } from "./informer.ts";

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
  cause: unknown,
): NotServed {
  return new NotServed(kind, {
    cause,
    isOptional: isOptional ?? false,
    ...(definition !== undefined && { untilServed: (signal) => untilEstablished(api, definition, signal) }),
  });
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
