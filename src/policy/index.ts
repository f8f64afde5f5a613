// The pure evaluator: state and packet in, verdict with the whole path out. The oracle of the renderers, and what
// `calicoctl explain` asks.
export * from "./evaluate.ts";
export { entriesFromResources, STATE_KINDS } from "./from-resources.ts";
export * from "./journey.ts";
export * from "./packet.ts";
export { PolicyState } from "./state.ts";
