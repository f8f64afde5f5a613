// Lets a gRPC server of another vendor create the pod's interface for addresses that were assigned.
import { isInterfaceName, parseWorkloadEndpointName, workloadEndpointName } from "../../model/index.ts";
import type { AttachPlan } from "./attach.ts";
import type { CniContext } from "../context.ts";
import { CniError, INTERNAL } from "../error.ts";
import { addForeignWire, deleteForeignWire, type ForeignDataplane, type MadeWire } from "./grpc-dataplane.ts";
import { nameFields } from "../request/identity.ts";
import { cidrText, hostNetwork } from "../request/result.ts";
import type { Undo } from "./undo.ts";
import type { MadeInterface } from "./workload.ts";

export async function attachForeign(
  context: CniContext,
  undo: Undo,
  plan: AttachPlan,
  dataplane: ForeignDataplane,
): Promise<MadeInterface> {
  const { conf, request, identity } = context;
  const { assigned, existing, workload } = plan;
  const name = existing?.stored.key.name ?? workloadEndpointName(nameFields(identity));
  const made = await addForeignWire(dataplane, {
    ...request,
    hostName: plan.hostName,
    allowIpForwarding: conf.allowIpForwarding,
    mtu: plan.mtu,
    addresses: assigned.ips.map(({ address, gateway }) => ({ address: cidrText(address), gateway })),
    routes: workload.routes,
    workload: {
      ...workload.description,
      ...identity,
      name,
      endpoint: parseWorkloadEndpointName(name)?.endpoint ?? identity.endpoint,
    },
  });
  undo.add(() => deleteForeignWire(dataplane, request));
  context.mark("wire up");
  const networks = assigned.ips.map((ip) => hostNetwork(ip.address));
  return { ...checked(made, dataplane, identity.orchestrator), networks };
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
