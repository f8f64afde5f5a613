// Builds and parses the names of workload endpoints: node, orchestrator, workload and endpoint, joined by `-`. A `-`
// inside a part is doubled. The endpoints of a node can therefore be listed by prefix.

export interface WorkloadIdentity {
  readonly node: string;
  readonly orchestrator: string;
  /** The pod in Kubernetes, the container ID for `cni`, otherwise the orchestrator's name of the workload. */
  readonly workload: string;
  readonly endpoint: string;
}

/** The fields of a WorkloadEndpoint's spec from which its name is built. */
export interface WorkloadNameFields {
  readonly node?: string;
  readonly orchestrator?: string;
  readonly pod?: string;
  readonly containerID?: string;
  readonly workload?: string;
  readonly endpoint?: string;
}

export class WorkloadNameError extends Error {
  override readonly name = "WorkloadNameError";
  constructor(
    readonly field: string,
    readonly reason: string,
  ) {
    super(`cannot build the name of a workload endpoint: ${field}: ${reason}`);
  }
}

/** Returns the field that contains the workload's name. */
const workloadFieldOf = (orchestrator: string): "pod" | "containerID" | "workload" =>
  orchestrator === "k8s" ? "pod" : orchestrator === "cni" ? "containerID" : "workload";

export function workloadEndpointName(fields: WorkloadNameFields): string {
  return segmentsOf(fields)
    .map(([field, value]) => {
      if (value === undefined || value === "") throw new WorkloadNameError(field, "field should be assigned");
      return escapeSegment(field, value);
    })
    .join("-");
}

/** Returns the common prefix of all names with these parts, up to the first part that is not given. Requires `node`. */
export function workloadEndpointPrefix(fields: WorkloadNameFields): string {
  if (fields.node === undefined || fields.node === "") throw new WorkloadNameError("node", "field should be assigned");
  let prefix = "";
  for (const [i, [field, value]] of segmentsOf(fields).entries()) {
    if (value === undefined || value === "") return prefix;
    prefix += escapeSegment(field, value) + (i < 3 ? "-" : "");
  }
  return prefix;
}

/** Returns undefined if the name does not have four parts, or if one of them is empty. */
export function parseWorkloadEndpointName(name: string): WorkloadIdentity | undefined {
  const parts = splitSegments(name);
  const [node = "", orchestrator = "", workload = "", endpoint = ""] = parts;
  if (parts.length !== 4 || parts.includes("")) return undefined;
  return { node, orchestrator, workload, endpoint };
}

/** Whether a name has these parts. A part that is not given matches anything. */
export function workloadNameMatches(name: string, fields: WorkloadNameFields): boolean {
  const identity = parseWorkloadEndpointName(name);
  if (identity === undefined) return false;
  const found = [identity.node, identity.orchestrator, identity.workload, identity.endpoint];
  return segmentsOf(fields).every(([, value], i) => value === undefined || value === "" || value === found[i]);
}

type Segment = readonly [field: string, value: string | undefined];
function segmentsOf(fields: WorkloadNameFields): readonly Segment[] {
  const orchestrator = fields.orchestrator ?? "";
  const field = workloadFieldOf(orchestrator);
  const workload: Segment = orchestrator === "libnetwork" ? [field, "libnetwork"] : [field, fields[field]];
  return [["node", fields.node], ["orchestrator", fields.orchestrator], workload, ["endpoint", fields.endpoint]];
}

function escapeSegment(field: string, value: string): string {
  if (value.startsWith("-") || value.endsWith("-"))
    throw new WorkloadNameError(field, `${JSON.stringify(value)} must not begin or end with -`);
  return value.replaceAll("-", "--");
}

/** Splits at single dashes, and replaces double dashes by single ones. */
function splitSegments(name: string): readonly string[] {
  const parts: string[] = [];
  let part = "";
  let from = 0;
  for (let dash = name.indexOf("-"); dash >= 0; dash = name.indexOf("-", from)) {
    if (name[dash + 1] === "-") {
      part += name.slice(from, dash + 1);
      from = dash + 2;
    } else {
      parts.push(part + name.slice(from, dash));
      part = "";
      from = dash + 1;
    }
  }
  parts.push(part + name.slice(from));
  return parts;
}

/** Returns the endpoint's file name in the endpoint status directory: `k8s default%2Fpod eth0`. */
export function endpointStatusFileName(key: {
  readonly orchestrator: string;
  readonly workload: string;
  readonly endpoint: string;
}): string {
  return [key.orchestrator, key.workload, key.endpoint].map(escapePathSegment).join(" ");
}

/** Escapes a path segment as in URLs: the characters `$&+=:@` are allowed there and not escaped. */
function escapePathSegment(text: string): string {
  return encodeURIComponent(text)
    .replaceAll(/%(24|26|2B|3D|3A|40)/g, (escaped) => decodeURIComponent(escaped))
    .replaceAll(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}
