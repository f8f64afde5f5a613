// Parses error answers of the API server: a Status object, or any text if the answer comes from a proxy.
import type { IncomingMessage } from "node:http";

export interface StatusCause {
  readonly field?: string;
  readonly reason?: string;
  readonly message?: string;
}

export interface StatusFacts {
  readonly code: number;
  /** `NotFound`, `AlreadyExists`, `Conflict`, `Expired`, …; empty if the answer contains none. */
  readonly reason: string;
  readonly message: string;
  readonly causes?: readonly StatusCause[];
  /** Delay before the next attempt. */
  readonly retryAfterSeconds?: number;
}

export class KubeStatusError extends Error {
  override readonly name = "KubeStatusError";
  readonly code: number;
  readonly reason: string;
  readonly causes: readonly StatusCause[];
  readonly retryAfterSeconds: number | undefined;

  /** @param request method and path: `GET /api/v1/nodes/n1` */
  constructor(
    readonly request: string,
    status: StatusFacts,
  ) {
    super(`${request}: ${status.message}`);
    this.code = status.code;
    this.reason = status.reason;
    this.causes = status.causes ?? [];
    this.retryAfterSeconds = status.retryAfterSeconds;
  }
}

/** Whether the API server rejected the client's credentials (401), not a lack of permission (403). */
export function isUnauthenticated(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof KubeStatusError && cause.code === 401) return true;
  return false;
}

/** Whether the API server reported that an object does not exist. A proxy's 404 has no reason. */
export function isObjectMissing(error: unknown): boolean {
  return error instanceof KubeStatusError && error.code === 404 && error.reason === "NotFound";
}

/** @param text the answer's body */
export function statusError(request: string, response: IncomingMessage, text: string): KubeStatusError {
  const code = response.statusCode ?? 0;
  const after = Number(response.headers["retry-after"]);
  const header = Number.isFinite(after) ? after : undefined;
  try {
    const {
      reason = "",
      message = `status ${code}`,
      details,
    } = JSON.parse(text) as {
      readonly reason?: string;
      readonly message?: string;
      readonly details?: { readonly causes?: readonly StatusCause[]; readonly retryAfterSeconds?: number };
    };
    const { causes, retryAfterSeconds } = details ?? {};
    return new KubeStatusError(request, {
      code,
      reason,
      message,
      // A proxy may send any JSON.
      causes: Array.isArray(causes) ? causes.filter((cause) => typeof cause === "object" && cause !== null) : [],
      retryAfterSeconds: typeof retryAfterSeconds === "number" ? retryAfterSeconds : header,
    });
  } catch {
    return new KubeStatusError(request, { code, reason: "", message: `status ${code}`, retryAfterSeconds: header });
  }
}
