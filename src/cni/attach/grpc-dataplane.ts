// The wire of a pod made by somebody else: a gRPC server on the node (a user-space switch, for one) that is told the pod's
// namespace and addresses and answers with what it made. https://grpc.io; the service is `cni.CniDataplane`, and field
// numbers are those of its public definition.
import { ProtoError, ProtoReader, ProtoWriter } from "../../lib/encoding/protobuf.ts";
import type { Labels, ResourceOf } from "../../model/index.ts";
import { FOREIGN_ANSWER_SECONDS } from "../request/dataplane-options.ts";
import { CniError, INTERNAL } from "../error.ts";
import { askGrpc, type GrpcServer, reachGrpc } from "./grpc-client.ts";

/** A dataplane that is not ours. */
export interface ForeignDataplane {
  readonly server: GrpcServer;
  /** Handed on with every request. */
  readonly options: Readonly<Record<string, string>>;
}

/** A pod's end of the wire, by which the server finds it again. */
export interface PodInterface {
  readonly ifName: string;
  readonly netns: string;
}
export interface ForeignWire extends PodInterface {
  readonly hostName: string;
  readonly allowIpForwarding: boolean;
  readonly mtu: number;
  /** Each with the length its assigner gave it. */
  readonly addresses: readonly { readonly address: string; readonly gateway?: string }[];
  readonly routes: readonly string[];
  readonly workload: ForeignWorkload;
}
export interface ForeignWorkload {
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
export interface MadeWire {
  readonly hostName: string;
  readonly mac: string;
}

export async function addForeignWire(dataplane: ForeignDataplane, wire: ForeignWire): Promise<MadeWire> {
  const reply = readReply(await ask(dataplane, "Add", encodeAdd(wire, dataplane.options)));
  return { hostName: reply.hostName, mac: reply.mac };
}

/** One that is not there is the server's to know. */
export async function deleteForeignWire(dataplane: ForeignDataplane, pod: PodInterface): Promise<void> {
  readReply(await ask(dataplane, "Del", encodeDel(pod, dataplane.options)));
}

/** @throws CniError when nobody speaks gRPC there */
export const reachForeignDataplane = ({ server }: ForeignDataplane): Promise<void> =>
  reachGrpc(server, FOREIGN_ANSWER_SECONDS * 1000);

const ask = ({ server }: ForeignDataplane, method: "Add" | "Del", message: Uint8Array): Promise<Uint8Array> =>
  askGrpc(server, { path: `/cni.CniDataplane/${method}`, message, timeoutMs: FOREIGN_ANSWER_SECONDS * 1000 });

export function encodeAdd(wire: ForeignWire, options: ForeignDataplane["options"]): Uint8Array {
  const { workload } = wire;
  const w = new ProtoWriter();
  w.string(1, wire.ifName);
  w.string(2, wire.netns);
  w.string(3, wire.hostName);
  w.message(4, () => {
    w.bool(1, wire.allowIpForwarding);
    w.int(2, wire.mtu);
  });
  w.messages(5, wire.addresses, ({ address, gateway }) => {
    w.string(1, address);
    w.string(2, gateway);
  });
  w.strings(6, wire.routes);
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

export function encodeDel(pod: PodInterface, options: ForeignDataplane["options"]): Uint8Array {
  const w = new ProtoWriter();
  w.string(1, pod.ifName);
  w.string(2, pod.netns);
  w.stringMap(3, options);
  return w.finish();
}

/** Both replies begin alike; the fields of the longer one are absent in the other. */
function readReply(bytes: Uint8Array): MadeWire {
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
    throw new CniError(INTERNAL, `grpc dataplane error: its answer cannot be read: ${error.message}`);
  }
  if (!isDone) throw new CniError(INTERNAL, `grpc dataplane error: ${reason || "it gave no reason"}`);
  return { hostName, mac };
}
