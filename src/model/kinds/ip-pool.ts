// Defines the kind IPPool: a range of addresses for workloads, tunnels or services, and the encapsulation of their traffic.
import { type Cidr, cidrLength, ipVersion, tryParseCidr, tryParseNetwork } from "../../lib/ip/ip.ts";
import { isMaskedCidr, overlappedLinkLocal } from "../validation/formats.ts";
import {
  choice,
  condition,
  extra,
  field,
  flag,
  integer,
  list,
  object,
  preset,
  selector,
  text,
  initial,
  unserved,
} from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext, type Stored } from "./kind.ts";

const encapsulation = () => unserved(preset(choice("Never", "Always", "CrossSubnet"), "Never"));

const spec = object({
  cidr: extra(text(), { decode: canonicalCidr, openapi: { format: "cidr" } }),
  vxlanMode: encapsulation(),
  ipipMode: encapsulation(),
  natOutgoing: field(flag()),
  disabled: field(flag()),
  disableBGPExport: field(flag()),
  blockSize: field(integer(0, 128)),
  nodeSelector: preset(selector(1024), "all()"),
  namespaceSelector: field(selector(1024)),
  allowedUses: unserved(preset(list(choice("Workload", "Tunnel", "LoadBalancer"), 10), ["Workload", "Tunnel"])),
  assignmentMode: initial(choice("Automatic", "Manual"), "Automatic"),
});
const status = object({ conditions: field(list(condition())) });
export type IPPoolResource = ResourceFor<"IPPool", typeof spec, typeof status>;
type Spec = Stored<typeof spec>;

const BLOCK_SIZES = { 4: { least: 20, most: 32, usual: 26 }, 6: { least: 116, most: 128, usual: 122 } } as const;

export default defineKind({
  kind: "IPPool",
  description: "A range of addresses, and the encapsulation of traffic between them.",
  spec,
  status,
  prepare: (pool) => {
    const cidr = typeof pool["cidr"] === "string" ? tryParseCidr(pool["cidr"]) : undefined;
    if (cidr !== undefined) pool["blockSize"] ??= BLOCK_SIZES[ipVersion(cidr)].usual;
  },
  rules: (pool, context) => {
    const cidr = tryParseCidr(pool.cidr);
    if (cidr === undefined || !pool.cidr.includes("/"))
      context.report(["cidr"], pool.cidr, "want a CIDR such as 10.10.0.0/16 or fd00:10::/64");
    else if (!isMaskedCidr(pool.cidr)) context.report(["cidr"], pool.cidr, `has host bits: did you mean ${cidr}?`);
    else checkRange(pool, cidr, context);
    checkUses(pool, context);
  },
  printerColumns: [
    { name: "CIDR", type: "string", jsonPath: ".spec.cidr" },
    { name: "VXLAN", type: "string", jsonPath: ".spec.vxlanMode" },
    { name: "IPIP", type: "string", jsonPath: ".spec.ipipMode" },
    { name: "NAT", type: "boolean", jsonPath: ".spec.natOutgoing" },
    { name: "Allocatable", type: "string", jsonPath: ".status.conditions[?(@.type=='Allocatable')].status" },
    { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
  ],
});

function checkRange(pool: Spec, cidr: Cidr, { report }: RuleContext): void {
  const version = ipVersion(cidr);
  const sizes = BLOCK_SIZES[version];
  const blockSize = pool.blockSize ?? sizes.usual;
  if (blockSize < sizes.least || blockSize > sizes.most)
    report(["blockSize"], blockSize, `want ${sizes.least} to ${sizes.most} for an IPv${version} pool`);
  else if (cidrLength(cidr) > blockSize && !pool.disabled)
    report(
      ["cidr"],
      pool.cidr,
      `is smaller than one block of /${blockSize}: enlarge it, choose a longer blockSize, or disable the pool`,
    );
  const linkLocal = overlappedLinkLocal(cidr);
  if (linkLocal !== undefined) report(["cidr"], pool.cidr, `overlaps the link-local range ${linkLocal}`);
  if (version === 6 && pool.ipipMode !== "Never")
    report(["ipipMode"], pool.ipipMode, "IPIP supports only IPv4: want Never");
}

function checkUses(pool: Spec, { report }: RuleContext): void {
  if (pool.ipipMode !== "Never" && pool.vxlanMode !== "Never")
    report(
      ["vxlanMode"],
      pool.vxlanMode,
      `cannot be combined with ipipMode ${pool.ipipMode}: a pool has one encapsulation`,
    );
  for (const name of ["nodeSelector", "namespaceSelector"] as const)
    if (pool[name]?.includes("global(")) report([name], pool[name], "global() selects nothing here");
  if (pool.allowedUses.includes("Tunnel") && pool.namespaceSelector !== undefined)
    report(["namespaceSelector"], pool.namespaceSelector, "tunnels have no namespace: remove Tunnel from allowedUses");
  if (!pool.allowedUses.includes("LoadBalancer")) return;
  if (pool.allowedUses.some((use) => use !== "LoadBalancer"))
    report(["allowedUses"], pool.allowedUses, "LoadBalancer cannot be combined with other uses");
  for (const mode of ["ipipMode", "vxlanMode"] as const)
    if (pool[mode] !== "Never") report([mode], pool[mode], "a LoadBalancer pool has no encapsulation: want Never");
  if (pool.disableBGPExport) report(["disableBGPExport"], true, "a LoadBalancer pool must be exported");
  if (pool.nodeSelector !== "all()") report(["nodeSelector"], pool.nodeSelector, "a LoadBalancer pool requires all()");
}

/** Returns the canonical spelling of a network. Host bits are kept, so that the rule above can reject them. */
function canonicalCidr(value: unknown): unknown {
  if (typeof value !== "string" || !value.includes("/")) return value;
  const network = tryParseNetwork(value);
  return network === undefined ? value : `${network.address}/${network.length}`;
}
