import { memoryRtnetlink } from "./memory-rtnetlink.ts";
import { rtnetlinkSuite } from "../route/rtnetlink.suite.ts";

rtnetlinkSuite("in memory", () => {
  const kernel = memoryRtnetlink();
  return { kernel, [Symbol.dispose]: () => kernel[Symbol.dispose]() };
});
