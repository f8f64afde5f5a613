export * from "./cluster/encapsulation.ts";
export * from "./cluster/stats.ts";
export * from "./config-batcher.ts";
export * from "./graph.ts";
export * from "./messages.ts";
