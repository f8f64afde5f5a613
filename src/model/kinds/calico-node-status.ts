// Defines the kind CalicoNodeStatus: a request to a node to report its state, and the report.
import {
  always,
  choice,
  distinct,
  field,
  integer,
  list,
  nullable,
  object,
  pointer,
  subdomain,
  text,
} from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({
  node: subdomain(),
  classes: distinct(choice("Agent", "BGP", "Routes")),
  updatePeriodSeconds: integer(0, 86400),
});

const daemon = object({
  state: field(choice("Ready", "NotReady")),
  version: field(text()),
  routerID: field(text()),
  lastBootTime: field(text()),
  lastReconfigurationTime: field(text()),
});
const peer = object({
  peerIP: field(text()),
  type: field(choice("NodeMesh", "NodePeer", "GlobalPeer")),
  state: field(choice("Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established", "Close")),
  since: field(text()),
});
const route = object({
  type: field(choice("FIB", "RIB")),
  destination: field(text()),
  gateway: field(text()),
  interface: field(text()),
  learnedFrom: pointer(
    object({ sourceType: field(choice("Kernel", "Static", "Direct", "NodeMesh", "BGPPeer")), peerIP: field(text()) }),
  ),
});
const count = () => always(integer(0), 0);
const status = object({
  lastUpdated: always(nullable(text()), null),
  agent: always(object({ birdV4: always(daemon, {}), birdV6: always(daemon, {}) }), { birdV4: {}, birdV6: {} }),
  bgp: always(
    object({
      numberEstablishedV4: count(),
      numberNotEstablishedV4: count(),
      numberEstablishedV6: count(),
      numberNotEstablishedV6: count(),
      peersV4: field(list(peer)),
      peersV6: field(list(peer)),
    }),
    { numberEstablishedV4: 0, numberNotEstablishedV4: 0, numberEstablishedV6: 0, numberNotEstablishedV6: 0 },
  ),
  routes: always(object({ routesV4: field(list(route)), routesV6: field(list(route)) }), {}),
});
export type CalicoNodeStatusResource = ResourceFor<"CalicoNodeStatus", typeof spec, typeof status>;

export default defineKind({
  kind: "CalicoNodeStatus",
  description: "Requests one node to report the state of BIRD, BGP sessions and routes in this object's status.",
  spec,
  status,
  initialStatus: {
    lastUpdated: null,
    agent: { birdV4: {}, birdV6: {} },
    bgp: { numberEstablishedV4: 0, numberNotEstablishedV4: 0, numberEstablishedV6: 0, numberNotEstablishedV6: 0 },
    routes: {},
  },
  printerColumns: [
    { name: "Node", type: "string", jsonPath: ".spec.node" },
    { name: "Classes", type: "string", jsonPath: ".spec.classes" },
  ],
});
