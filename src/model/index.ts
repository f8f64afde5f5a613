// The data model's front door. Light: schemas (zod) are loaded only by who validates, through `loadSchemas`.
export * from "./built-in-tiers.ts";
export * from "./columns.ts";
export * from "./derived.ts";
export * from "./duration.ts";
export * from "./faults.ts";
export * from "./formats.ts";
export { InvalidKey, isStoredKey, keyPath, parseKeyPath, parseStoredPath } from "./key-path.ts";
export { keyMatches, type PathRange, queryRange } from "./key-query.ts";
export * from "./interface-owner.ts";
export * from "./keys.ts";
export * from "./kinds.ts";
export * from "./kubernetes/index.ts";
export * from "./labels.ts";
export * from "./legacy-pool.ts";
export * from "./numbers.ts";
export { isStagedKind } from "./policy-key.ts";
export * from "./policy-names.ts";
export * from "./policy-order.ts";
export * from "./processors/index.ts";
export * from "./resource.ts";
export type * from "./resources.ts";
export type { ResourceSchema } from "./schemas.ts";
export * from "./selector.ts";
export { decodeResource } from "./stored-resource.ts";
export { decodeValue, encodeValue } from "./stored-values.ts";
export { UnreadableValue } from "./unreadable-value.ts";
export { isValueError, type ReportProblem } from "./value-error.ts";
export * from "./workload-name.ts";

/** The schemas, and zod with them: a few milliseconds, so only where something is validated. */
export const loadSchemas = () => import("./schemas.ts");
/** The custom resource definitions, made from the schemas. */
export const loadCustomResourceDefinitions = () => import("./kinds/crd.ts");
