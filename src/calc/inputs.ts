// The names this room uses from below, in one place.
export type { Cidr, IpAddress } from "../lib/ip.ts";
export type { Labels, PolicyKind, QosControls } from "../model/index.ts";
