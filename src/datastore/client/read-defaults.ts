// Fills in defaults when a resource is read: resources that were written by older releases, or directly through the
// Kubernetes API, lack them.
import { ipVersion, tryParseCidr } from "../../lib/ip/ip.ts";
import { INITIAL_STATUS, type Resource, specFields, withSpecFields } from "../../model/index.ts";

type Fields = Readonly<Record<string, unknown>>;

const BLOCK_SIZE = { 4: 26, 6: 122 } as const;
const DEFAULTS: Readonly<Partial<Record<Resource["kind"], (spec: Fields) => Fields>>> = {
  IPPool: (spec) => {
    const cidr = typeof spec["cidr"] === "string" ? tryParseCidr(spec["cidr"]) : undefined;
    return {
      ...(cidr === undefined ? {} : { blockSize: BLOCK_SIZE[ipVersion(cidr)] }),
      vxlanMode: "Never",
      ipipMode: "Never",
      nodeSelector: "all()",
      allowedUses: ["Workload", "Tunnel"],
      assignmentMode: "Automatic",
    };
  },
  Tier: () => ({ order: 1_000_000, defaultAction: "Deny" }),
};

export function withReadDefaults(resource: Resource): Resource {
  const initial = INITIAL_STATUS[resource.kind];
  const defaults = DEFAULTS[resource.kind];
  if (initial === undefined && defaults === undefined) return resource;
  const status = resource.status ?? initial;
  const completed = defaults === undefined ? resource : withMissingFields(resource, defaults);
  return status === resource.status ? completed : { ...completed, status };
}

function withMissingFields(resource: Resource, defaultsOf: (spec: Fields) => Fields): Resource {
  const { spec } = resource;
  if (spec !== undefined && (typeof spec !== "object" || spec === null)) return resource;
  const fields = specFields(resource);
  const missing = Object.entries(defaultsOf(fields)).filter(([name]) => isUnset(name, fields[name]));
  return missing.length === 0 ? resource : withSpecFields(resource, Object.fromEntries(missing));
}

/** 0 counts as unset, except for `order`: a tier with order 0 is the first. */
const isUnset = (name: string, value: unknown): boolean =>
  value === undefined || value === null || value === "" || (value === 0 && name !== "order") || isEmptyList(value);
const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.length === 0;
