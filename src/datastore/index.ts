export * from "./api-config.ts";
export * from "./config.ts";
export * from "./datastore.ts";
export * from "./errors.ts";
export { nameOfKey } from "./key-name.ts";
export { openSqlite, openSqliteInMemory } from "./sqlite/open.ts";
export * from "./syncer.ts";
