// Decodes the reports of an external dataplane driver: protobuf with the field numbers of Calico's protocol.
import { ProtoReader } from "../../lib/encoding/protobuf.ts";
import type { DataplaneReport, WorkloadEndpointId } from "../messages.ts";

export const REPORT_TAGS = {
  processStatus: 3,
  hostEndpointStatus: 4,
  hostEndpointStatusRemove: 5,
  workloadEndpointStatus: 6,
  workloadEndpointStatusRemove: 7,
  wireguardStatus: 9,
  dataplaneInSync: 10,
} as const;

type Status = "up" | "down" | "error";

/** Returns undefined for an unknown payload. The endpoint in a workload's status is not decoded. */
export function decodeFromDataplane(bytes: Uint8Array): DataplaneReport | undefined {
  const envelope = ProtoReader.of(bytes);
  for (let field = envelope.next(); field !== 0; field = envelope.next())
    switch (field) {
      case REPORT_TAGS.processStatus:
        return processStatus(envelope.message());
      case REPORT_TAGS.hostEndpointStatus: {
        const { id, status } = endpointStatus(envelope.message(), hostId, "");
        return { type: "hostEndpointStatus", endpointId: id, status };
      }
      case REPORT_TAGS.hostEndpointStatusRemove:
        return { type: "hostEndpointStatusRemove", endpointId: endpointStatus(envelope.message(), hostId, "").id };
      case REPORT_TAGS.workloadEndpointStatus:
        return { type: "workloadEndpointStatus", ...endpointStatus(envelope.message(), workloadId, NO_WORKLOAD) };
      case REPORT_TAGS.workloadEndpointStatusRemove: {
        const { id } = endpointStatus(envelope.message(), workloadId, NO_WORKLOAD);
        return { type: "workloadEndpointStatusRemove", id };
      }
      case REPORT_TAGS.wireguardStatus:
        return wireguardStatus(envelope.message());
      case REPORT_TAGS.dataplaneInSync:
        return { type: "dataplaneInSync" };
      default:
        envelope.skip();
    }
  return undefined;
}

function processStatus(reader: ProtoReader): DataplaneReport {
  let [time, uptimeSeconds] = ["", 0];
  for (let field = reader.next(); field !== 0; field = reader.next())
    if (field === 1) time = reader.text();
    else if (field === 2) uptimeSeconds = reader.double();
    else reader.skip();
  return { type: "processStatus", time, uptimeSeconds };
}

function wireguardStatus(reader: ProtoReader): DataplaneReport {
  let [publicKey, version] = ["", 0];
  for (let field = reader.next(); field !== 0; field = reader.next())
    if (field === 1) publicKey = reader.text();
    else if (field === 2) version = reader.number();
    else reader.skip();
  return { type: "wireguardStatus", publicKey, ipVersion: version === 6 ? 6 : 4 };
}

/** The four endpoint messages have the ID in field 1; those that are not removals have the status in field 2. */
function endpointStatus<T>(
  reader: ProtoReader,
  readId: (reader: ProtoReader) => T,
  none: T,
): { id: T; status: Status } {
  let [id, status]: [T, Status] = [none, "error"];
  for (let field = reader.next(); field !== 0; field = reader.next())
    if (field === 1) id = readId(reader.message());
    else if (field === 2) status = statusOf(reader.message());
    else reader.skip();
  return { id, status };
}

function hostId(reader: ProtoReader): string {
  let id = "";
  for (let field = reader.next(); field !== 0; field = reader.next())
    if (field === 2) id = reader.text();
    else reader.skip();
  return id;
}

const NO_WORKLOAD: WorkloadEndpointId = { orchestrator: "", workload: "", endpoint: "" };

function workloadId(reader: ProtoReader): WorkloadEndpointId {
  let { orchestrator, workload, endpoint } = NO_WORKLOAD;
  for (let field = reader.next(); field !== 0; field = reader.next())
    if (field === 2) orchestrator = reader.text();
    else if (field === 3) workload = reader.text();
    else if (field === 4) endpoint = reader.text();
    else reader.skip();
  return { orchestrator, workload, endpoint };
}

function statusOf(reader: ProtoReader): Status {
  let text = "";
  for (let field = reader.next(); field !== 0; field = reader.next())
    if (field === 1) text = reader.text();
    else reader.skip();
  return text === "up" || text === "down" ? text : "error";
}
