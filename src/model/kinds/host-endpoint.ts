// Defines the kind HostEndpoint: an interface of a host, or all of them, to which policy applies.
import { hasPorts } from "../validation/numbers.ts";
import { address, field, integer, interfaceName, list, object, portName, protocol, subdomain } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({
  node: subdomain(),
  interfaceName: field(interfaceName()),
  expectedIPs: field(list(address())),
  profiles: field(list(subdomain())),
  ports: field(
    list(object({ name: portName(), protocol: protocol(), port: integer(1, 65535, "want a port, 1 to 65535") })),
  ),
});
export type HostEndpointResource = ResourceFor<"HostEndpoint", typeof spec>;

export default defineKind({
  kind: "HostEndpoint",
  description: "An interface of a host, or all of them, to which policy applies.",
  spec,
  rules: (endpoint, { report }) => {
    if (endpoint.interfaceName === undefined && endpoint.expectedIPs === undefined)
      report(["interfaceName"], undefined, "interfaceName or expectedIPs is required");
    for (const [i, port] of (endpoint.ports ?? []).entries())
      if (!hasPorts(port.protocol)) report(["ports", i, "protocol"], port.protocol, "want TCP, UDP or SCTP");
  },
  printerColumns: [
    { name: "Node", type: "string", jsonPath: ".spec.node" },
    { name: "Interface", type: "string", jsonPath: ".spec.interfaceName" },
  ],
});
