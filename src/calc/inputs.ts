// Types of lib and model that many files of this module use.
export type { Cidr, IpAddress } from "../lib/ip/ip.ts";
export type { Labels, PolicyKind, QosControls } from "../model/index.ts";
