export * from "./checks.ts";
export {
  ConfigEngine,
  ConfigError,
  type ResolvedConfig,
} from "./engine.ts";
export * from "./sources.ts";
export { settingsWithoutEffect } from "./without-effect.ts";
