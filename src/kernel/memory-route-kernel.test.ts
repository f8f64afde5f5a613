import { memoryRouteKernel } from "./memory-route-kernel.ts";
import { routeKernelSuite } from "./route-kernel.suite.ts";

routeKernelSuite("in memory", () => {
  const kernel = memoryRouteKernel();
  return { kernel, [Symbol.dispose]: () => kernel[Symbol.dispose]() };
});
