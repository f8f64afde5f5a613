// The HTTP status of a request that the API server refused.

/** Undefined for an error that is no answer of the API server. */
export const codeOf = (error: unknown): number | undefined =>
  error instanceof Error ? (error as { readonly code?: number }).code : undefined;
