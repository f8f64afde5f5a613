export * from "./checks.ts";
export * from "./engine.ts";
export { BadValue, type Surroundings } from "./parameter.ts";
export * from "./parameters.ts";
export * from "./sources.ts";
export type { FailsafePort, PortSpan, Rate, TableRange } from "./value-types.ts";
export { settingsWithoutEffect } from "./without-effect.ts";
