// What a dataplane reports, as protobuf with the field numbers of the original protocol.
import { type ProtoField, ProtoWriter, readFields } from "../../lib/protobuf.ts";
import { unreachable } from "../../lib/unreachable.ts";
import type { DataplaneReport, WorkloadEndpointId } from "../messages.ts";
import { writeWorkload, writeWorkloadId } from "./to-dataplane.ts";

const TAGS = {
  processStatus: 3,
  hostEndpointStatus: 4,
  hostEndpointStatusRemove: 5,
  workloadEndpointStatus: 6,
  workloadEndpointStatusRemove: 7,
  wireguardStatus: 9,
  dataplaneInSync: 10,
} as const;
const SEQUENCE_NUMBER = 8;

type Status = "up" | "down" | "error";

/** Undefined for a payload this version does not know. The endpoint beside a workload's status is not read back. */
export function decodeFromDataplane(bytes: Uint8Array): DataplaneReport | undefined {
  for (const field of readFields(bytes)) {
    const payload = () => new Map([...field.fields()].map((each) => [each.number, each]));
    switch (field.number) {
      case TAGS.processStatus: {
        const fields = payload();
        return {
          type: "processStatus",
          time: fields.get(1)?.string() ?? "",
          uptimeSeconds: fields.get(2)?.double() ?? 0,
        };
      }
      case TAGS.hostEndpointStatus: {
        const fields = payload();
        return { type: "hostEndpointStatus", endpointId: hostId(fields.get(1)), status: statusOf(fields.get(2)) };
      }
      case TAGS.hostEndpointStatusRemove:
        return { type: "hostEndpointStatusRemove", endpointId: hostId(payload().get(1)) };
      case TAGS.workloadEndpointStatus: {
        const fields = payload();
        return { type: "workloadEndpointStatus", id: workloadId(fields.get(1)), status: statusOf(fields.get(2)) };
      }
      case TAGS.workloadEndpointStatusRemove:
        return { type: "workloadEndpointStatusRemove", id: workloadId(payload().get(1)) };
      case TAGS.wireguardStatus: {
        const fields = payload();
        return {
          type: "wireguardStatus",
          publicKey: fields.get(1)?.string() ?? "",
          ipVersion: fields.get(2)?.int() === 6 ? 6 : 4,
        };
      }
      case TAGS.dataplaneInSync:
        return { type: "dataplaneInSync" };
    }
  }
  return undefined;
}

export function encodeFromDataplane(report: DataplaneReport, sequenceNumber: number): Uint8Array {
  const w = new ProtoWriter();
  const tag = TAGS[report.type];
  if (tag > SEQUENCE_NUMBER) w.int(SEQUENCE_NUMBER, sequenceNumber);
  w.message(tag, () => writeReport(w, report));
  if (tag < SEQUENCE_NUMBER) w.int(SEQUENCE_NUMBER, sequenceNumber);
  return w.finish();
}

function writeReport(w: ProtoWriter, report: DataplaneReport): void {
  switch (report.type) {
    case "processStatus":
      w.string(1, report.time);
      w.double(2, report.uptimeSeconds);
      return;
    case "hostEndpointStatus":
      w.message(1, () => w.string(2, report.endpointId));
      w.message(2, () => w.string(1, report.status));
      return;
    case "hostEndpointStatusRemove":
      return w.message(1, () => w.string(2, report.endpointId));
    case "workloadEndpointStatus": {
      const { endpoint } = report;
      w.message(1, () => writeWorkloadId(w, report.id));
      w.message(2, () => w.string(1, report.status));
      if (endpoint !== undefined) w.message(3, () => writeWorkload(w, endpoint));
      return;
    }
    case "workloadEndpointStatusRemove":
      return w.message(1, () => writeWorkloadId(w, report.id));
    case "wireguardStatus":
      w.string(1, report.publicKey);
      w.int(2, report.ipVersion);
      return;
    case "dataplaneInSync":
      return;
    default:
      return unreachable(report);
  }
}

function hostId(field: ProtoField | undefined): string {
  for (const each of field?.fields() ?? []) if (each.number === 2) return each.string();
  return "";
}

function workloadId(field: ProtoField | undefined): WorkloadEndpointId {
  const id = { orchestrator: "", workload: "", endpoint: "" };
  for (const each of field?.fields() ?? [])
    if (each.number === 2) id.orchestrator = each.string();
    else if (each.number === 3) id.workload = each.string();
    else if (each.number === 4) id.endpoint = each.string();
  return id;
}

function statusOf(field: ProtoField | undefined): Status {
  for (const each of field?.fields() ?? []) {
    const text = each.number === 1 ? each.string() : "";
    if (text === "up" || text === "down") return text;
  }
  return "error";
}
