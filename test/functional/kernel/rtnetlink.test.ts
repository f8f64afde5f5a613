// Runs the suite of the fake Rtnetlink with the real kernel.
import { rtnetlinkSuite } from "../../../src/kernel/route/rtnetlink.suite.ts";
import { isRoot, RtnetlinkNamespace } from "./rtnetlink-namespace.ts";

rtnetlinkSuite("Linux", () => new RtnetlinkNamespace(), isRoot);
