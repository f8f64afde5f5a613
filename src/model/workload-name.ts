// A workload endpoint's name: the parts that identify it, each with `-` doubled, joined by `-`, so that names of one node
// sort together and can be listed by prefix.

export interface WorkloadIdentity {
  readonly node: string;
  readonly orchestrator: string;
  /** Kubernetes' pod, CNI's container ID, or the workload as its orchestrator calls it. */
  readonly workload: string;
  readonly endpoint: string;
}

/** The fields of a WorkloadEndpoint's spec that its name is made of. */
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
    super(`cannot make a workload endpoint's name: ${field}: ${reason}`);
  }
}

/** Where each orchestrator keeps the workload's name. */
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

/** How all names begin that have these parts. Ends at the first part that is not given; the node always is. */
export function workloadEndpointPrefix(fields: WorkloadNameFields): string {
  if (fields.node === undefined || fields.node === "") throw new WorkloadNameError("node", "field should be assigned");
  let prefix = "";
  for (const [i, [field, value]] of segmentsOf(fields).entries()) {
    if (value === undefined || value === "") return prefix;
    prefix += escapeSegment(field, value) + (i < 3 ? "-" : "");
  }
  return prefix;
}

/** Undefined for a name that is none: not four parts, or one of them empty. */
export function parseWorkloadEndpointName(name: string): WorkloadIdentity | undefined {
  const parts = splitSegments(name);
  const [node = "", orchestrator = "", workload = "", endpoint = ""] = parts;
  if (parts.length !== 4 || parts.includes("")) return undefined;
  return { node, orchestrator, workload, endpoint };
}

/** Whether a name has these parts; what is not given matches anything. */
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

/** Splits at single dashes and undoubles the others. */
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

/** The file that tells of this endpoint in the status folder: `k8s default%2Fpod eth0`. */
export function endpointStatusFileName(key: {
  readonly orchestrator: string;
  readonly workload: string;
  readonly endpoint: string;
}): string {
  return [key.orchestrator, key.workload, key.endpoint].map(escapePathSegment).join(" ");
}

/** As URLs escape a path segment: what may stand there stays (`$&+=:@`), the rest becomes %XX. */
function escapePathSegment(text: string): string {
  return encodeURIComponent(text)
    .replaceAll(/%(24|26|2B|3D|3A|40)/g, (escaped) => decodeURIComponent(escaped))
    .replaceAll(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}
