// Attaches a pod through a gRPC dataplane: the server creates the pod's interface for the assigned addresses.
import { isInterfaceName, parseWorkloadEndpointName, workloadEndpointName } from "../../model/index.ts";
import type { AttachPlan } from "./attach.ts";
import type { CniContext } from "../context.ts";
import { CniError, INTERNAL } from "../error.ts";
import { addGrpcInterface, deleteGrpcInterface, type GrpcDataplane, type CreatedInterface } from "./grpc-dataplane.ts";
import { nameFields } from "../request/identity.ts";
import { cidrText, hostNetwork } from "../request/result.ts";
import type { Undo } from "./undo.ts";
import type { AttachedInterface } from "./workload.ts";

export async function attachByGrpc(
  context: CniContext,
  undo: Undo,
  plan: AttachPlan,
  dataplane: GrpcDataplane,
): Promise<AttachedInterface> {
  const { conf, request, identity } = context;
  const { assigned, existing, workload } = plan;
  const name = existing?.stored.key.name ?? workloadEndpointName(nameFields(identity));
  const created = await addGrpcInterface(dataplane, {
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
  undo.add(() => deleteGrpcInterface(dataplane, request));
  context.mark("interface up");
  const networks = assigned.ips.map((ip) => hostNetwork(ip.address));
  return { ...validate(created, dataplane, identity.orchestrator), networks };
}

/** Validates the server's reply, because Felix uses the interface name in rules. */
function validate(
  { hostName, mac }: CreatedInterface,
  { server }: GrpcDataplane,
  orchestrator: "k8s" | "cni",
): CreatedInterface {
  const invalid = (what: string, value: string): CniError =>
    new CniError(INTERNAL, `the dataplane at ${server.name} returned an invalid ${what}: ${JSON.stringify(value)}`);
  if (!isInterfaceName(hostName)) throw invalid("interface name", hostName);
  if (mac === "" && orchestrator === "cni") return { hostName, mac };
  if (!/^[0-9a-f]{2}([:-][0-9a-f]{2}){5}$/i.test(mac)) throw invalid("MAC address", mac);
  return { hostName, mac: mac.toLowerCase().replaceAll("-", ":") };
}
