// Reads IPPools.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Resource } from "../resource.ts";
import { cidrIn } from "./fields.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export type Encapsulation = "Never" | "Always" | "CrossSubnet";

export interface IpPool {
  readonly name: string;
  readonly cidr: Cidr;
  readonly blockSize: number;
  readonly ipipMode: Encapsulation;
  readonly vxlanMode: Encapsulation;
  readonly natOutgoing: boolean;
  readonly isDisabled: boolean;
  readonly disableBgpExport: boolean;
  /** As stored; empty selects all nodes. */
  readonly nodeSelector: string;
  /** As stored; empty selects all namespaces. */
  readonly namespaceSelector: string;
  readonly allowedUses: readonly string[];
  /** Addresses are assigned without naming the pool. */
  readonly isAutomatic: boolean;
  readonly isDeleting: boolean;
  /** New addresses may be assigned: the pool is not disabled, not being deleted, and allocatable by its status. */
  readonly mayAssign: boolean;
}

const DEFAULT_BLOCK_SIZE: Readonly<Record<IpVersion, number>> = { 4: 26, 6: 122 };
const DEFAULT_USES = ["Workload", "Tunnel"];

/**
 * A pool whose uses cannot be read has none.
 * @returns undefined if the pool has no CIDR
 */
export function readPool(
  { metadata, spec: specJson, status }: Resource,
  onUnreadable: OnUnreadable,
): IpPool | undefined {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(specJson ?? {}, "spec"), undefined);
  const cidr = read(() => spec && (cidrIn(spec, "cidr") ?? spec.fail("cidr", "a CIDR such as 10.0.0.0/16")), undefined);
  if (spec === undefined || cidr === undefined) return undefined;
  const text = (name: string) => read(() => spec.text(name), undefined) ?? "";
  const flag = (name: string) => read(() => spec.flag(name), undefined) ?? false;
  const encapsulation = (name: string) => read(() => encapsulationIn(spec, name), undefined) ?? "Never";
  const uses = read(() => spec.texts("allowedUses"), undefined);
  const isDisabled = flag("disabled");
  const isDeleting = metadata.deletionTimestamp !== undefined;
  return {
    name: metadata.name,
    cidr,
    blockSize: read(() => blockSizeIn(spec), undefined) ?? DEFAULT_BLOCK_SIZE[ipVersion(cidr)],
    ipipMode: encapsulation("ipipMode"),
    vxlanMode: encapsulation("vxlanMode"),
    natOutgoing: flag("natOutgoing"),
    isDisabled,
    disableBgpExport: flag("disableBGPExport"),
    nodeSelector: text("nodeSelector"),
    namespaceSelector: text("namespaceSelector"),
    allowedUses: uses?.length === 0 ? DEFAULT_USES : (uses ?? []),
    isAutomatic: text("assignmentMode") !== "Manual",
    isDeleting,
    mayAssign: !isDisabled && !isDeleting && read(() => isAllocatable(status), true),
  };
}

/** 0 counts as unset. */
function blockSizeIn(spec: JsonReader): number | undefined {
  const size = spec.number("blockSize");
  return size === undefined || size > 0 ? size : undefined;
}

function encapsulationIn(spec: JsonReader, name: string): Encapsulation | undefined {
  const mode = spec.filled(name);
  switch (mode) {
    case undefined:
    case "Never":
    case "Always":
    case "CrossSubnet":
      return mode;
    default:
      return spec.fail(name, "Never, Always or CrossSubnet");
  }
}

const isAllocatable = (status: unknown): boolean =>
  !new JsonReader(status ?? {}, "status")
    .objects("conditions")
    .some((condition) => condition.raw("type") === "Allocatable" && condition.raw("status") === "False");
