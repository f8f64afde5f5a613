// Encodes a rule as protobuf. The rule ID is a hash of these bytes, so field order and default values must be exactly those
// of Calico's encoder.
import type { ProtoWriter } from "../../lib/encoding/protobuf.ts";
import type { IcmpMatch, PortRange, ProtocolMatch, ProtoRule } from "../messages.ts";

export function writeRule(w: ProtoWriter, rule: ProtoRule): void {
  const { original } = rule;
  w.string(1, rule.action);
  w.int(2, rule.ipVersion);
  writeProtocol(w, 3, rule.protocol);
  w.strings(4, rule.srcNet);
  writePorts(w, 5, rule.srcPorts);
  w.strings(6, rule.dstNet);
  writePorts(w, 7, rule.dstPorts);
  w.strings(10, rule.srcIpSetIds);
  w.strings(11, rule.dstIpSetIds);
  w.strings(12, rule.srcNamedPortIpSetIds);
  w.strings(13, rule.dstNamedPortIpSetIds);
  w.strings(15, rule.dstIpPortSetIds);
  writeProtocol(w, 102, rule.notProtocol);
  w.strings(103, rule.notSrcNet);
  writePorts(w, 104, rule.notSrcPorts);
  w.strings(105, rule.notDstNet);
  writePorts(w, 106, rule.notDstPorts);
  w.strings(109, rule.notSrcIpSetIds);
  w.strings(110, rule.notDstIpSetIds);
  w.strings(112, rule.notSrcNamedPortIpSetIds);
  w.strings(113, rule.notDstNamedPortIpSetIds);
  w.string(114, original.srcSelector);
  w.string(115, original.dstSelector);
  w.string(116, original.srcNamespaceSelector);
  w.string(117, original.dstNamespaceSelector);
  w.string(118, original.notSrcSelector);
  w.string(119, original.notDstSelector);
  writeServiceAccounts(w, 120, original.srcServiceAccount);
  writeServiceAccounts(w, 121, original.dstServiceAccount);
  const http = rule.httpMatch;
  if (http !== undefined)
    w.message(122, () => {
      w.strings(1, http.methods);
      w.messages(2, http.paths, (path) => {
        if ("exact" in path) w.strings(1, [path.exact]);
        else w.strings(2, [path.prefix]);
      });
    });
  const { annotations } = rule;
  if (annotations !== undefined) w.message(123, () => w.stringMap(1, annotations));
  w.string(130, original.dstService?.name);
  w.string(131, original.dstService?.namespace);
  w.string(132, original.srcService?.name);
  w.string(133, original.srcService?.namespace);
  w.string(201, rule.ruleId);
  // Calico's encoder writes `oneof` fields last, regardless of their numbers.
  writeIcmp(w, { type: 8, typeAndCode: 9 }, rule.icmp);
  writeIcmp(w, { type: 107, typeAndCode: 108 }, rule.notIcmp);
}

function writeProtocol(w: ProtoWriter, field: number, protocol: ProtocolMatch | undefined): void {
  if (protocol === undefined) return;
  w.message(field, () => {
    if ("number" in protocol) w.intAlways(1, protocol.number);
    else w.strings(2, [protocol.name]);
  });
}

function writePorts(w: ProtoWriter, field: number, ports: readonly PortRange[]): void {
  for (const { first, last } of ports)
    w.message(field, () => {
      w.int(1, first);
      w.int(2, last);
    });
}

function writeIcmp(
  w: ProtoWriter,
  fields: { readonly type: number; readonly typeAndCode: number },
  icmp: IcmpMatch | undefined,
): void {
  if (icmp === undefined) return;
  const { code } = icmp;
  if (code === undefined) w.intAlways(fields.type, icmp.type);
  else
    w.message(fields.typeAndCode, () => {
      w.int(1, icmp.type);
      w.int(2, code);
    });
}

function writeServiceAccounts(
  w: ProtoWriter,
  field: number,
  match: { readonly selector: string; readonly names: readonly string[] } | undefined,
): void {
  if (match === undefined) return;
  w.message(field, () => {
    w.string(1, match.selector);
    w.strings(2, match.names);
  });
}
