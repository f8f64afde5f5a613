// An ADD whose wire a server makes: it is asked when there are addresses, and names the interface the host got.
import { isInterfaceName, parseWorkloadEndpointName, workloadEndpointName } from "../model/index.ts";
import { type Attached, type AttachPlan, hostNameOf, type Undo } from "./attach.ts";
import type { CniContext } from "./context.ts";
import { CniError, INTERNAL } from "./error.ts";
import { addForeignWire, deleteForeignWire, type ForeignDataplane, type MadeWire } from "./grpc-dataplane.ts";
import { nameFields } from "./identity.ts";
import { cidrText, hostNetwork } from "./result.ts";

export async function attachForeign(
  context: CniContext,
  undo: Undo,
  plan: AttachPlan,
  dataplane: ForeignDataplane,
): Promise<Attached> {
  const { conf, request, identity } = context;
  const { assigned, existing } = await plan.booking;
  context.mark("address assigned");
  const name = existing?.stored.key.name ?? workloadEndpointName(nameFields(identity));
  const made = await addForeignWire(dataplane, {
    ...request,
    hostName: hostNameOf(context),
    allowIpForwarding: conf.allowIpForwarding,
    mtu: plan.mtu,
    addresses: assigned.ips.map(({ address, gateway }) => ({ address: cidrText(address), gateway })),
    routes: plan.routes,
    workload: {
      ...plan.workload,
      ...identity,
      name,
      endpoint: parseWorkloadEndpointName(name)?.endpoint ?? identity.endpoint,
    },
  });
  undo.push(() => deleteForeignWire(dataplane, request));
  context.mark("wire up");
  const networks = assigned.ips.map((ip) => hostNetwork(ip.address));
  return { ...checked(made, dataplane, identity.orchestrator), assigned, networks };
}

/** What it says is stored for the node agent to program: its name becomes part of rules. */
function checked({ hostName, mac }: MadeWire, { server }: ForeignDataplane, orchestrator: "k8s" | "cni"): MadeWire {
  const wrong = (what: string, value: string): CniError =>
    new CniError(INTERNAL, `the dataplane at ${server.name} answered with no ${what}: ${JSON.stringify(value)}`);
  if (!isInterfaceName(hostName)) throw wrong("name of an interface", hostName);
  if (mac === "" && orchestrator === "cni") return { hostName, mac };
  if (!/^[0-9a-f]{2}([:-][0-9a-f]{2}){5}$/i.test(mac)) throw wrong("MAC address", mac);
  return { hostName, mac: mac.toLowerCase().replaceAll("-", ":") };
}
