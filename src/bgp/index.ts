export { birdConfiguration, isUsablePassword, type RenderInputs } from "./bird/configuration.ts";
export { BgpCollector } from "./collect.ts";
export { type LocalInputs, NoSuchNode, plan } from "./plan.ts";
export type * from "./plan-types.ts";
export { hashedRouterId } from "./router-id.ts";
export type { LocalWorkload } from "./sessions.ts";
export type { BgpState, Problem, SecretRef } from "./state.ts";
