// Exports the data model. Schemas, and zod with them, are loaded only by programs that call `loadSchemas`.
export * from "./built-in-tiers.ts";
export * from "./columns.ts";
export * from "./stored/derived.ts";
export * from "./validation/duration.ts";
export * from "./validation/faults.ts";
export * from "./validation/formats.ts";
export { InvalidKey, isStoredKey, keyPath, parseKeyPath, parseStoredPath } from "./keys/key-path.ts";
export { keyMatches, type PathRange, queryRange } from "./keys/key-query.ts";
export {
  FELIX_SETTING_GROUPS,
  FELIX_SETTINGS,
  type FailsafePort,
  type FelixConfig,
  felixDefaultOf,
  type FelixSetting,
  type FelixSettingName,
  felixSettingNames,
  felixSettingValue,
  findFelixSetting,
  type HostFiles,
  InvalidSetting,
} from "./felix-settings/index.ts";
export * from "./interface-owner.ts";
export * from "./keys/keys.ts";
export * from "./kinds.ts";
export * from "./kubernetes/index.ts";
export * from "./labels.ts";
export * from "./legacy-pool.ts";
export * from "./validation/numbers.ts";
export { isStagedKind } from "./keys/policy-key.ts";
export * from "./keys/policy-names.ts";
export * from "./policy-order.ts";
export * from "./processors/index.ts";
export * from "./readers/index.ts";
export * from "./resource-fields.ts";
export * from "./resource.ts";
export type * from "./resources.ts";
export type { ResourceSchema } from "./validation/schemas.ts";
export * from "./selector/selector.ts";
export { decodeResource } from "./stored/stored-resource.ts";
export { decodeValue, encodeValue } from "./stored/stored-values.ts";
export { UnreadableValue } from "./stored/unreadable-value.ts";
export { isValueError, type ReportProblem } from "./validation/value-error.ts";
export * from "./workload-name.ts";

/** Loads the schemas and zod. This takes a few milliseconds, so only programs that validate resources call it. */
export const loadSchemas = () => import("./validation/schemas.ts");
/** Loads the generator of custom resource definitions. */
export const loadCustomResourceDefinitions = () => import("./kinds/crd.ts");
