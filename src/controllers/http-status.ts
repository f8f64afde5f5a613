// Returns the HTTP status of a request that the API server rejected.

/** @returns undefined if the error does not come from the API server */
export const httpStatusOf = (error: unknown): number | undefined =>
  error instanceof Error ? (error as { readonly code?: number }).code : undefined;
