// Builds the network of a lab: one namespace, the fabric, contains a bridge per segment, and each interface of a host is a veth
// pair to a bridge. The machine's own network is not changed.
import {
  createNamedNamespace,
  hasErrno,
  listNamedNamespaces,
  NetworkNamespace,
  openRtnetlink,
  procSysctls,
  withNamespace,
} from "../kernel/index.ts";
import { parseAddress, parseCidr, parseNetwork } from "../lib/ip/ip.ts";
import type { LabFolder } from "./folder.ts";
import type { LabPlan, PlannedHost, PlannedInterface, PlannedRoute } from "./plan.ts";

export const FABRIC = "fabric";

/** Creates the bridges, and the lab's own addresses on the control segment. */
export function buildFabric(folder: LabFolder, plan: LabPlan): void {
  ensureNamespace(folder.namespace(FABRIC));
  using namespace = NetworkNamespace.named(folder.namespace(FABRIC));
  using kernel = openRtnetlink(namespace);
  kernel.links.set("lo", { up: true });
  withNamespace(namespace, () => {
    // Bridges must not filter packets between hosts with the fabric's iptables rules.
    for (const file of ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"]) {
      try {
        procSysctls.write(["net", "bridge", file], 0);
      } catch {
        // br_netfilter is not loaded
      }
    }
  });
  for (const segment of plan.segments) {
    const name = bridgeName(segment);
    if (kernel.links.get(name) === undefined)
      withKind("bridge", () => kernel.links.create({ name, type: { kind: "bridge", stp: false } }));
    kernel.links.set(name, { up: true });
  }
  addAddresses(kernel, bridgeName(plan.control.segment), plan.control.addresses);
  addRoutes(kernel, plan.control.routes ?? []);
}

/** Creates a host's namespace and interfaces, sets addresses and routes, and enables forwarding. */
export function connectHost(folder: LabFolder, host: PlannedHost): void {
  ensureNamespace(folder.namespace(host.name));
  using fabricNamespace = NetworkNamespace.named(folder.namespace(FABRIC));
  using hostNamespace = NetworkNamespace.named(folder.namespace(host.name));
  using fabric = openRtnetlink(fabricNamespace);
  using kernel = openRtnetlink(hostNamespace);
  kernel.links.set("lo", { up: true });
  withNamespace(hostNamespace, () => {
    procSysctls.write(["net", "ipv4", "ip_forward"], 1);
    procSysctls.write(["net", "ipv6", "conf", "all", "forwarding"], 1);
    // Between racks, packets may return through another interface.
    procSysctls.write(["net", "ipv4", "conf", "default", "rp_filter"], 0);
  });
  for (const nic of host.interfaces) {
    const port = portName(host, nic);
    if (kernel.links.get(nic.name) === undefined) {
      const master = fabric.links.get(bridgeName(nic.segment))?.index;
      if (master === undefined) throw new Error(`lab ${folder.name} has no segment ${nic.segment}`);
      withKind("veth", () =>
        fabric.links.create({
          name: port,
          type: { kind: "veth", peer: { name: nic.name, namespaceFd: hostNamespace.fd } },
          master,
          up: true,
        }),
      );
    }
    fabric.links.set(port, { up: true });
    kernel.links.set(nic.name, { up: true });
    addAddresses(kernel, nic.name, nic.addresses);
  }
  addRoutes(kernel, host.routes);
}

/** Disconnects or reconnects one interface. */
export function setConnected(folder: LabFolder, host: PlannedHost, nic: PlannedInterface, isConnected: boolean): void {
  using namespace = NetworkNamespace.named(folder.namespace(FABRIC));
  using fabric = openRtnetlink(namespace);
  fabric.links.set(portName(host, nic), { up: isConnected });
}

const bridgeName = (segment: string): string => `br-${segment}`;
const portName = (host: PlannedHost, nic: PlannedInterface): string => `${host.name}-${nic.name}`;

function ensureNamespace(name: string): void {
  if (!listNamedNamespaces().includes(name)) createNamedNamespace(name);
}

/** @throws an error that names the kernel module if links of this kind are not supported */
function withKind(kind: "bridge" | "veth", create: () => void): void {
  try {
    create();
  } catch (error) {
    if (!hasErrno(error, "EOPNOTSUPP")) throw error;
    throw new Error(`this kernel has no links of kind ${kind}; modprobe ${kind}`, { cause: error });
  }
}

function addAddresses(kernel: ReturnType<typeof openRtnetlink>, link: string, addresses: readonly string[]): void {
  const index = kernel.links.get(link)?.index;
  if (index === undefined) throw new Error(`no interface ${link}`);
  for (const text of addresses)
    kernel.addresses.replace({ link: index, ...parseNetwork(text), noDuplicateDetection: true });
}

function addRoutes(kernel: ReturnType<typeof openRtnetlink>, routes: readonly PlannedRoute[]): void {
  for (const route of routes)
    kernel.routes.replace({ destination: parseCidr(route.destination), gateway: parseAddress(route.via) });
}
