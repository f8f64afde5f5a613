// Encodes reports as an external dataplane driver sends them.
import { ProtoWriter } from "../../lib/encoding/protobuf.ts";
import { unreachable } from "../../lib/unreachable.ts";
import type { DataplaneReport } from "../messages.ts";
import { REPORT_TAGS } from "../wire/from-dataplane.ts";
import { writeWorkload, writeWorkloadId } from "../wire/to-dataplane.ts";

const SEQUENCE_NUMBER = 8;

export function encodeReport(report: DataplaneReport, sequenceNumber: number): Uint8Array {
  const w = new ProtoWriter();
  const tag = REPORT_TAGS[report.type];
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
