// Formats and parses the report that `ipam check -o` writes and `ipam release --from-report` reads: every allocation with its
// owners, and the handles without addresses. Numbers are 64-bit.
import type { AllocationRecord } from "../../ipam/index.ts";
import { type IpAddress, tryParseAddress } from "../../lib/ip/ip.ts";
import { isJsonObject, type Json, parseLosslessJson, stringifyLosslessJson } from "../../lib/encoding/lossless-json.ts";
import { Failure } from "../command-line/failure.ts";

export interface ReportedAllocation {
  readonly ip: IpAddress;
  readonly handle: string;
  readonly sequenceNumber?: bigint;
  readonly inUse: boolean;
  readonly coolingDown: boolean;
}
export interface ReportedHandle {
  readonly ID: string;
  readonly UID?: string;
  readonly Revision: string;
}
export interface Report {
  readonly version: string;
  readonly clusterGUID: string;
  readonly datastoreLocked: boolean;
  readonly clusterInformationRevision: string;
  readonly allocations: ReadonlyMap<IpAddress, readonly ReportedAllocation[]>;
  readonly leakedHandles: readonly ReportedHandle[];
}

export interface ReportInput {
  readonly version: string;
  readonly clusterGUID: string;
  readonly clusterType: string;
  readonly datastoreLocked: boolean;
  readonly clusterInformationRevision: string;
  readonly allocations: readonly (AllocationRecord & { readonly owners: readonly string[] })[];
  readonly leakedHandles: readonly ReportedHandle[];
}

export function formatReport(input: ReportInput): string {
  const { allocations, leakedHandles, ...head } = input;
  const byAddress: Record<string, unknown[]> = {};
  for (const { address, handleId, sequenceNumber, attributes, owners, borrowed, coolingDown } of allocations) {
    byAddress[address] ??= [];
    byAddress[address].push({
      ip: address,
      handle: handleId ?? "",
      sequenceNumber,
      pod: attributes["pod"],
      namespace: attributes["namespace"],
      node: attributes["node"],
      type: attributes["type"],
      creationTimestamp: attributes["timestamp"],
      inUse: owners.length > 0,
      borrowed,
      coolingDown,
      owners,
    });
  }
  return `${stringifyLosslessJson({ ...head, allocations: byAddress, leakedHandles }, 2)}\n`;
}

/** @throws Failure with the name of the file if it is not a report */
export function parseReport(file: string, text: string): Report {
  const fault = (why: string) => new Failure(`failed to read report ${file}: ${why}`);
  let json: Json;
  try {
    json = parseLosslessJson(text);
  } catch (error) {
    throw fault(error instanceof Error ? error.message : String(error));
  }
  if (!isJsonObject(json)) throw fault("want a JSON object");
  const word = (value: Json | undefined) => (typeof value === "string" ? value : "");
  const allocations = new Map<IpAddress, ReportedAllocation[]>();
  for (const [key, list] of Object.entries(isJsonObject(json["allocations"]) ? json["allocations"] : {})) {
    const ip = tryParseAddress(key);
    if (ip === undefined) throw fault(`${key} is not an address`);
    const entries = (Array.isArray(list) ? (list as readonly Json[]) : []).filter(isJsonObject);
    allocations.set(
      ip,
      entries.map((entry) => {
        const number = entry["sequenceNumber"];
        return {
          ip,
          handle: word(entry["handle"]),
          inUse: entry["inUse"] === true,
          coolingDown: entry["coolingDown"] === true,
          ...(typeof number === "bigint" || typeof number === "number" ? { sequenceNumber: BigInt(number) } : {}),
        };
      }),
    );
  }
  const handles = (Array.isArray(json["leakedHandles"]) ? (json["leakedHandles"] as readonly Json[]) : []).filter(
    isJsonObject,
  );
  return {
    version: word(json["version"]),
    clusterGUID: word(json["clusterGUID"]),
    datastoreLocked: json["datastoreLocked"] === true,
    clusterInformationRevision: word(json["clusterInformationRevision"]),
    allocations,
    leakedHandles: handles.map((handle) => ({
      ID: word(handle["ID"]),
      Revision: word(handle["Revision"]),
      ...(typeof handle["UID"] === "string" ? { UID: handle["UID"] } : {}),
    })),
  };
}
