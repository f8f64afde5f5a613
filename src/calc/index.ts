export * from "./cluster/encapsulation.ts";
export * from "./cluster/stats.ts";
export * from "./config-batcher.ts";
export * from "./graph.ts";
export * from "./messages.ts";
export { decodeFromDataplane } from "./wire/from-dataplane.ts";
export { frame, FrameReader } from "./wire/frames.ts";
export { encodeToDataplane } from "./wire/to-dataplane.ts";
