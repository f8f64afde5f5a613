export * from "./checks.ts";
export * from "./engine.ts";
export { type Surroundings } from "./parameter.ts";
export * from "./parameters.ts";
export * from "./sources.ts";
export { settingsWithoutEffect } from "./without-effect.ts";
