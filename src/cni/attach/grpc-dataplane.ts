// Requests a pod's interface from a gRPC dataplane: a server on the node, for example a user-space switch, that receives the
// pod's namespace and addresses and replies with the interface it created. https://grpc.io; the service is
// `cni.CniDataplane`, and field numbers are those of its public definition.
import { ProtoError, ProtoReader, ProtoWriter } from "../../lib/encoding/protobuf.ts";
import type { Labels, ResourceOf } from "../../model/index.ts";
import { GRPC_REPLY_TIMEOUT_SECONDS } from "../request/dataplane-options.ts";
import { CniError, INTERNAL } from "../error.ts";
import { callGrpc, type GrpcServer, checkGrpcServer } from "./grpc-client.ts";

export interface GrpcDataplane {
  readonly server: GrpcServer;
  /** Sent with every request. */
  readonly options: Readonly<Record<string, string>>;
}

/** Identifies the pod's interface. */
export interface PodInterface {
  readonly ifName: string;
  readonly netns: string;
}
export interface GrpcInterface extends PodInterface {
  readonly hostName: string;
  readonly allowIpForwarding: boolean;
  readonly mtu: number;
  /** Each with the prefix length that IPAM returned. */
  readonly addresses: readonly { readonly address: string; readonly gateway?: string }[];
  readonly routes: readonly string[];
  readonly workload: GrpcWorkload;
}
export interface GrpcWorkload {
  readonly name: string;
  readonly namespace: string;
  readonly labels: Labels;
  readonly annotations: Labels;
  readonly endpoint: string;
  readonly node: string;
  readonly orchestrator: string;
  readonly pod: string;
  readonly ports: NonNullable<ResourceOf<"WorkloadEndpoint">["spec"]["ports"]>;
}
export interface CreatedInterface {
  readonly hostName: string;
  readonly mac: string;
}

export async function addGrpcInterface(dataplane: GrpcDataplane, request: GrpcInterface): Promise<CreatedInterface> {
  const reply = readReply(await call(dataplane, "Add", encodeAdd(request, dataplane.options)));
  return { hostName: reply.hostName, mac: reply.mac };
}

/** The server decides whether an interface that does not exist is an error. */
export async function deleteGrpcInterface(dataplane: GrpcDataplane, pod: PodInterface): Promise<void> {
  readReply(await call(dataplane, "Del", encodeDel(pod, dataplane.options)));
}

/** @throws CniError if there is no HTTP/2 server at the address */
export const checkGrpcDataplane = ({ server }: GrpcDataplane): Promise<void> =>
  checkGrpcServer(server, GRPC_REPLY_TIMEOUT_SECONDS * 1000);

const call = ({ server }: GrpcDataplane, method: "Add" | "Del", message: Uint8Array): Promise<Uint8Array> =>
  callGrpc(server, { path: `/cni.CniDataplane/${method}`, message, timeoutMs: GRPC_REPLY_TIMEOUT_SECONDS * 1000 });

export function encodeAdd(request: GrpcInterface, options: GrpcDataplane["options"]): Uint8Array {
  const { workload } = request;
  const w = new ProtoWriter();
  w.string(1, request.ifName);
  w.string(2, request.netns);
  w.string(3, request.hostName);
  w.message(4, () => {
    w.bool(1, request.allowIpForwarding);
    w.int(2, request.mtu);
  });
  w.messages(5, request.addresses, ({ address, gateway }) => {
    w.string(1, address);
    w.string(2, gateway);
  });
  w.strings(6, request.routes);
  w.message(7, () => {
    w.string(1, workload.name);
    w.string(2, workload.namespace);
    w.stringMap(3, workload.labels);
    w.stringMap(4, workload.annotations);
    w.string(5, workload.endpoint);
    w.string(6, workload.node);
    w.string(7, workload.orchestrator);
    w.string(8, workload.pod);
    w.messages(9, workload.ports, (port) => {
      w.string(1, port.name);
      w.string(2, String(port.protocol));
      w.int(3, port.port);
      w.int(4, port.hostPort);
      w.string(5, port.hostIP);
    });
  });
  w.stringMap(8, options);
  return w.finish();
}

export function encodeDel(pod: PodInterface, options: GrpcDataplane["options"]): Uint8Array {
  const w = new ProtoWriter();
  w.string(1, pod.ifName);
  w.string(2, pod.netns);
  w.stringMap(3, options);
  return w.finish();
}

/** Reads the reply to Add or Del. The reply to Del has only the first two fields. */
function readReply(bytes: Uint8Array): CreatedInterface {
  let isDone = false;
  let reason = "";
  let hostName = "";
  let mac = "";
  try {
    const reader = ProtoReader.of(bytes);
    for (let field = reader.next(); field !== 0; field = reader.next())
      if (field === 1) isDone = reader.boolean();
      else if (field === 2) reason = reader.text();
      else if (field === 3) hostName = reader.text();
      else if (field === 4) mac = reader.text();
      else reader.skip();
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    throw new CniError(INTERNAL, `grpc dataplane error: the reply cannot be decoded: ${error.message}`);
  }
  if (!isDone) throw new CniError(INTERNAL, `grpc dataplane error: ${reason || "the server gave no reason"}`);
  return { hostName, mac };
}
