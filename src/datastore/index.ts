export * from "./datastore.ts";
export * from "./errors.ts";
export * from "./syncer.ts";
