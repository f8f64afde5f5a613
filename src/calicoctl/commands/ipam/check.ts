// Implements `calicoctl ipam check`, which compares allocated addresses with addresses in use, and checks that blocks,
// affinities and handles are consistent. It repairs problems only with --fix, after confirmation.
import { writeFileSync } from "node:fs";
import {
  type AllocationRecord,
  allocationsIn,
  compareUsage,
  describeFinding,
  type Finding,
  findInconsistencies,
  Ipam,
  readUsers,
  type UsageFindings,
} from "../../../ipam/index.ts";
import { NotFound } from "../../../datastore/index.ts";
import { BUILD } from "../../../lib/process/build.ts";
import { type Cidr } from "../../../lib/ip/ip.ts";
import { ignoreUnreadable, readClusterInformation, readPool, type Resource } from "../../../model/index.ts";
import { type OpenStore, openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { checkGrammar } from "../../table/ipam.ts";
import { formatReport } from "../../ipam/report.ts";
import { clusterInformation, isLocked } from "../migrate/shared.ts";

/** Exit code if there are problems. */
const FOUND = 3;
/** A younger allocation may belong to a pod that is still being set up. */
const GRACE_MS = 5 * 60_000;
const MAX_TOP_NODES = 20;

export async function run(call: Call<typeof checkGrammar>): Promise<number> {
  const print = (text: string) => call.io.out(`${text}\n`);
  print("Checking IPAM for inconsistencies...\n");
  const skipped = new Set<string>();
  await using store = await openChecked(call, { requests: "few", onSkipped: ({ path }) => skipped.add(path) });
  const information = await clusterInformation(store);
  if (information === undefined) throw new NotFound("ClusterInformation(default)");
  const checked = await check(call, store);
  if (skipped.size > 0) {
    // An unreadable entry may be the user of an address, so addresses that seem unused must not be released or reported.
    print(
      `Found ${skipped.size} entries that cannot be read: until they are corrected or deleted, nothing is repaired and no report is written.`,
    );
    print(`Check complete; found ${checked.problems + skipped.size} problems.`);
    return FOUND;
  }
  const file = call.flags.output;
  if (file !== undefined) {
    writeFileSync(file, reportOf(checked, information));
    print(`Wrote the report to ${file}.`);
  }
  print(`Check complete; found ${checked.problems} problems.`);
  if (checked.problems === 0) return 0;
  return call.flags.fix ? await fix(call, store, checked, isLocked(information)) : FOUND;
}

interface Checked {
  readonly allocations: readonly (AllocationRecord & { readonly owners: readonly string[] })[];
  readonly leaked: readonly AllocationRecord[];
  readonly findings: readonly Finding[];
  readonly handles: readonly { readonly ID: string; readonly UID?: string; readonly Revision: string }[];
  readonly problems: number;
}

interface Printer {
  readonly print: (text: string) => void;
  /** Prints only with --show-problem-ips or --show-all-ips. */
  readonly printProblem: (text: string) => void;
}

async function check(call: Call<typeof checkGrammar>, store: OpenStore): Promise<Checked> {
  const print = (text: string) => call.io.out(`${text}\n`);
  const showsAll = call.flags["show-all-ips"];
  const printProblem = (text: string) => {
    if (showsAll || call.flags["show-problem-ips"]) print(`  ${text}`);
  };
  const printer: Printer = { print, printProblem };
  const state = await load(store, print);
  const { records, users, handles } = state;
  const owners = Map.groupBy(users, (user) => user.address);
  const allocations = records.map((record) => ({
    ...record,
    owners: (owners.get(record.address) ?? []).map((user) => user.name),
  }));
  if (showsAll)
    for (const { address, owners: names } of allocations)
      print(`  ${address} ${names.length > 0 ? `in use: ${names.join(", ")}` : "allocated"}`);
  const usage = compareUsage(records, users, state.pools);
  printUsage(usage, printer);
  const nodes = new Set((await store.list({ kind: "Node" })).items.map((node) => node.metadata.name));
  const findings = findInconsistencies({ ...state, nodes });
  const leakedHandles = new Set(
    findings.flatMap((finding) => (finding.kind === "leaked-handle" ? [finding.handleId] : [])),
  );
  printFindings(findings, { leaked: leakedHandles, matched: handles.length - leakedHandles.size }, printer);
  return {
    allocations,
    leaked: usage.leaked,
    findings,
    handles: handles
      .filter((handle) => leakedHandles.has(handle.value.handleId))
      .map(({ value, revision, uid }) => ({
        ID: value.handleId,
        Revision: revision,
        UID: uid,
      })),
    problems:
      usage.leaked.length +
      usage.outsidePools.length +
      usage.unallocated.length +
      usage.shared.length +
      findings.length,
  };
}

async function load(store: OpenStore, print: Printer["print"]) {
  const { datastore } = store;
  print("Loading all IPAM blocks...");
  const blocks = (await datastore.list({ type: "block" })).items;
  const affinities = (await datastore.list({ type: "blockAffinity" })).items;
  const records = blocks.flatMap(({ value }) => allocationsIn(value));
  print(`Found ${blocks.length} IPAM blocks.`);
  for (const { value } of blocks) print(` IPAM block ${value.cidr} affinity=${value.affinity ?? "<none>"}:`);
  print(`IPAM blocks record ${records.length} allocations.\n`);

  print("Loading all IPAM pools...");
  const pools = activePools((await store.list({ kind: "IPPool" })).items);
  for (const pool of pools) print(`  ${pool}`);
  print(`Found ${pools.length} active IP pools.\n`);

  print("Loading all nodes.");
  const users = await readUsers(datastore);
  const [tunnels, workloads] = [users.filter((u) => u.kind === "tunnel"), users.filter((u) => u.kind === "workload")];
  print(`Found ${tunnels.length} node tunnel IPs.\n`);
  print("Loading all workload endpoints.");
  print(`Found ${workloads.length} workload IPs.`);
  print(`Workloads and nodes are using ${new Set(users.map((user) => user.address)).size} IPs.\n`);

  print("Loading all handles");
  const handles = (await datastore.list({ type: "ipamHandle" })).items;
  printTopNodes(records, print);
  return { blocks, affinities, records, pools, users, handles };
}

function printUsage(
  { leaked, outsidePools, unallocated, shared }: UsageFindings,
  { print, printProblem }: Printer,
): void {
  print("Scanning for IPs that are allocated but not actually in use...");
  for (const { address, handleId } of leaked) printProblem(`${address} leaked; handle ${handleId ?? "<none>"}`);
  print(`Found ${leaked.length} IPs that are allocated in IPAM but not actually in use.`);
  print("Scanning for IPs that are in use by a workload or node but not allocated in IPAM...");
  for (const { address, name } of outsidePools) printProblem(`${address} in use by ${name}, not in active IP pools`);
  print(`Found ${outsidePools.length} in-use IPs that are not in active IP pools.`);
  for (const { address, name } of unallocated) printProblem(`${address} in use by ${name}, not allocated`);
  print(
    `Found ${unallocated.length} in-use IPs that are in active IP pools but have no corresponding IPAM allocation.`,
  );
  for (const { address, users } of shared)
    print(`  ${address} has ${users.length} owners: ${users.map((user) => user.name).join(", ")}`);
  if (shared.length > 0) print(`Found ${shared.length} IPs that several workloads or nodes use.`);
  print("");
}

function printFindings(
  findings: readonly Finding[],
  handles: { readonly leaked: ReadonlySet<string>; readonly matched: number },
  { print, printProblem }: Printer,
): void {
  print("Scanning for IPAM handles with no matching IPs...");
  for (const id of handles.leaked) printProblem(`${id} doesn't have any active IPs`);
  print(`Found ${handles.leaked.size} handles with no matching IPs (and ${handles.matched} handles with matches).`);
  print("Scanning for IPs with missing handle...");
  const missing = findings.filter((finding) => finding.kind === "missing-handle");
  print(`Found ${missing.length} handles mentioned in blocks with no matching handle resource.`);
  for (const finding of findings) if (finding.kind !== "leaked-handle") print(`  ${describeFinding(finding)}`);
}

function activePools(pools: readonly Resource[]): readonly Cidr[] {
  return pools.flatMap((resource) => {
    const pool = readPool(resource, ignoreUnreadable);
    return pool === undefined || pool.isDisabled ? [] : [pool.cidr];
  });
}

function printTopNodes(records: readonly AllocationRecord[], print: Printer["print"]): void {
  print(`Looking for top (up to ${MAX_TOP_NODES}) nodes by allocations...`);
  const counts = new Map<string, number>();
  for (const { attributes } of records) {
    const node = attributes["node"];
    if (node !== undefined) counts.set(node, (counts.get(node) ?? 0) + 1);
  }
  const sorted = [...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
  for (const [node, count] of sorted.slice(0, MAX_TOP_NODES)) print(`  ${node} has ${count} allocations`);
  const most = sorted[0]?.[1];
  if (most !== undefined)
    print(`Node with most allocations has ${most}; median is ${sorted[sorted.length >> 1]?.[1] ?? 0}`);
  print("");
}

function reportOf(checked: Checked, information: Resource): string {
  const { clusterGuid = "", clusterType = "" } = readClusterInformation(information, ignoreUnreadable);
  return formatReport({
    version: BUILD.version,
    clusterGUID: clusterGuid,
    clusterType,
    datastoreLocked: isLocked(information),
    clusterInformationRevision: information.metadata.resourceVersion ?? "",
    allocations: checked.allocations,
    leakedHandles: checked.handles,
  });
}

async function fix(
  call: Call<typeof checkGrammar>,
  store: OpenStore,
  checked: Checked,
  locked: boolean,
): Promise<number> {
  const { io, flags } = call;
  // If the datastore is not locked, the CNI plugin may have allocated an address and not yet written the pod's endpoint.
  const old = checked.leaked.filter((record) => locked || ageMs(record) >= GRACE_MS);
  const young = checked.leaked.length - old.length;
  if (young > 0)
    io.out(
      `${young} leaked addresses are younger than ${GRACE_MS / 60_000} minutes or of unknown age and are kept; lock the datastore to release them too.\n`,
    );
  if (old.length + checked.findings.length === 0) return FOUND;
  if (!flags.yes) {
    io.out(`Release ${old.length} addresses and repair ${checked.findings.length} objects? [y/N] `);
    const answer = io.readLine?.() ?? new TextDecoder().decode(io.readStdin()).split("\n", 1)[0] ?? "";
    if (!/^y(es)?$/i.test(answer.trim())) {
      io.out("Nothing was changed.\n");
      return FOUND;
    }
  }
  const ipam = new Ipam({ datastore: store.datastore });
  const { released, error } = await ipam.release(
    old.map(({ address, handleId, sequenceNumber }) => ({
      address,
      handleId,
      sequenceNumber,
    })),
  );
  const before = checked.findings.length;
  const unrepaired = await ipam.repair(checked.findings);
  const after = await ipam.inconsistencies();
  io.out(`Released ${released.length} addresses, repaired ${before - unrepaired.length} objects.\n`);
  for (const finding of after) io.out(`  not repaired: ${describeFinding(finding)}\n`);
  if (error !== undefined) io.err(`${error instanceof Error ? error.message : String(error)}\n`);
  const rest = checked.problems - released.length - before + after.length;
  return rest === 0 && error === undefined ? 0 : FOUND;
}

/** Returns the age of an allocation, or 0 if it has no valid timestamp. */
function ageMs({ attributes }: AllocationRecord): number {
  const [day, time] = (attributes["timestamp"] ?? "").split(" ");
  const createdMs = Date.parse(`${day}T${(time ?? "").slice(0, 12)}Z`);
  return Number.isNaN(createdMs) ? 0 : Date.now() - createdMs;
}
