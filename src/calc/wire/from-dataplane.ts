// What a dataplane reports, as protobuf with the field numbers of the original protocol.
import { type ProtoField, readFields } from "../../lib/protobuf.ts";
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

/** Undefined for a payload this version does not know. The endpoint beside a workload's status is not read back. */
export function decodeFromDataplane(bytes: Uint8Array): DataplaneReport | undefined {
  for (const field of readFields(bytes)) {
    const payload = () => new Map([...field.fields()].map((each) => [each.number, each]));
    switch (field.number) {
      case REPORT_TAGS.processStatus: {
        const fields = payload();
        return {
          type: "processStatus",
          time: fields.get(1)?.string() ?? "",
          uptimeSeconds: fields.get(2)?.double() ?? 0,
        };
      }
      case REPORT_TAGS.hostEndpointStatus: {
        const fields = payload();
        return { type: "hostEndpointStatus", endpointId: hostId(fields.get(1)), status: statusOf(fields.get(2)) };
      }
      case REPORT_TAGS.hostEndpointStatusRemove:
        return { type: "hostEndpointStatusRemove", endpointId: hostId(payload().get(1)) };
      case REPORT_TAGS.workloadEndpointStatus: {
        const fields = payload();
        return { type: "workloadEndpointStatus", id: workloadId(fields.get(1)), status: statusOf(fields.get(2)) };
      }
      case REPORT_TAGS.workloadEndpointStatusRemove:
        return { type: "workloadEndpointStatusRemove", id: workloadId(payload().get(1)) };
      case REPORT_TAGS.wireguardStatus: {
        const fields = payload();
        return {
          type: "wireguardStatus",
          publicKey: fields.get(1)?.string() ?? "",
          ipVersion: fields.get(2)?.int() === 6 ? 6 : 4,
        };
      }
      case REPORT_TAGS.dataplaneInSync:
        return { type: "dataplaneInSync" };
    }
  }
  return undefined;
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
