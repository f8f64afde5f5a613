// The real kernel passes the suite that the one in memory passes.
import { routeKernelSuite } from "../../../src/kernel/route-kernel.suite.ts";
import { isRoot, TestNamespace } from "./support.ts";

routeKernelSuite("Linux", () => new TestNamespace(), isRoot);
