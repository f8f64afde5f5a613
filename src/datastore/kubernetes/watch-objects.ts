// Sends one watch request to the Kubernetes API, and converts its failures to the datastore's typed errors.
import { Compacted, NotServed, Unavailable } from "../errors.ts";
import type { KubeApi, KubeObject, KubeWatchEvent } from "./api-client.ts";
import { toDatastoreError } from "./failures.ts";
import { KubeStatusError } from "./status-error.ts";

export type KubeObjectEvent = Exclude<KubeWatchEvent, { readonly type: "ERROR" }>;

/**
 * Yields an empty batch when the watch is open, then batches of events. Returns when the server ends the watch.
 * @throws Compacted if the server no longer has the changes after `after` (410 Gone), NotServed, Unauthorized, Unavailable
 */
export async function* watchObjects(options: {
  readonly api: KubeApi;
  readonly path: string;
  /** Selectors. */
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly after: string;
  readonly signal: AbortSignal;
  readonly lossless?: boolean;
  /** Name of the kind or path, for errors. */
  readonly kind: string;
}): AsyncGenerator<readonly KubeObjectEvent[]> {
  const { api, path, query, signal, lossless, kind } = options;
  let after = options.after;
  try {
    for await (const batch of api.watch(path, { ...query, resourceVersion: after }, signal, lossless)) {
      const events: KubeObjectEvent[] = [];
      for (const event of batch) {
        if (event.type === "ERROR") {
          if (events.length > 0) yield events;
          throw errorInWatch(event.object);
        }
        after = event.object.metadata.resourceVersion ?? after;
        events.push(event);
      }
      yield events;
    }
  } catch (error) {
    throw signal.aborted ? error : watchError(error, { kind, after, endpoint: api.endpoint });
  }
}

/** `namespace/name`, or the name alone. */
export const objectKey = ({ metadata }: KubeObject): string =>
  metadata.namespace === undefined ? metadata.name : `${metadata.namespace}/${metadata.name}`;

/** An error that the server reports inside the stream. */
function errorInWatch({ code = 500, reason = "", message = "the server ended the watch" }: WatchStatus): Error {
  return new KubeStatusError("watch", { code, reason, message });
}

interface WatchStatus {
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
}

function watchError(
  error: unknown,
  { kind, after, endpoint }: { readonly kind: string; readonly after: string; readonly endpoint: string },
): unknown {
  if (!(error instanceof KubeStatusError)) return error;
  const cause = { cause: error };
  // The server rejects a revision as too large after it was restored from a backup: list again.
  const isTooNew = error.causes.some(({ reason }) => reason === "ResourceVersionTooLarge");
  if (error.code === 410 || error.reason === "Expired" || isTooNew) return new Compacted(after, cause);
  if (error.code === 404) return new NotServed(kind, cause);
  if (error.code === 429 || error.code >= 500)
    return new Unavailable(endpoint, error.message, { ...cause, wasAnswered: true });
  return toDatastoreError(error, kind);
}
