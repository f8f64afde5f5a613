// Evaluates policy for one packet without the kernel: for `calicoctl explain`, and as the reference that tests compare
// the rule renderers with.
export * from "./evaluate-endpoint.ts";
export { entriesFromResources, STATE_KINDS } from "./from-resources.ts";
export * from "./evaluate-packet.ts";
export * from "./packet.ts";
export { PolicyState } from "./state.ts";
