// The data model's front door. Light: schemas (zod) are loaded only by who validates, through `loadSchemas`.
export * from "./derived.ts";
export * from "./keys.ts";
export * from "./kinds.ts";
export * from "./resource.ts";
export * from "./selector.ts";
