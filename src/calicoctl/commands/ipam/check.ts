// calicoctl ipam check: what is allocated against what is in use, and whether blocks, affinities and handles agree.
// Looks first, tells what it found, and repairs only when asked to and told yes.
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

/** Exit code when something is wrong. */
const FOUND = 3;
/** An address that was given so lately may belong to a pod that is still being set up. */
const GRACE_MS = 5 * 60_000;
const TOP = 20;

export async function run(call: Call<typeof checkGrammar>): Promise<number> {
  const say = (text: string) => call.io.out(`${text}\n`);
  say("Checking IPAM for inconsistencies...\n");
  const skipped = new Set<string>();
  await using store = await openChecked(call, { requests: "few", onSkipped: ({ path }) => skipped.add(path) });
  const information = await clusterInformation(store);
  if (information === undefined) throw new NotFound("ClusterInformation(default)");
  const checked = await check(call, store);
  if (skipped.size > 0) {
    // What uses an address may be among them: nothing is to be concluded from its absence, here or by who reads a report.
    say(
      `Found ${skipped.size} entries that cannot be read: until they are mended or deleted nothing is repaired and no report is written.`,
    );
    say(`Check complete; found ${checked.problems + skipped.size} problems.`);
    return FOUND;
  }
  const file = call.flags.output;
  if (file !== undefined) {
    writeFileSync(file, reportOf(checked, information));
    say(`Wrote the report to ${file}.`);
  }
  say(`Check complete; found ${checked.problems} problems.`);
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

/** What the user hears of. */
interface Telling {
  readonly say: (text: string) => void;
  /** Only when problems were asked for one by one. */
  readonly problem: (text: string) => void;
  /** Every address was asked for. */
  readonly all: boolean;
}

async function check(call: Call<typeof checkGrammar>, store: OpenStore): Promise<Checked> {
  const say = (text: string) => call.io.out(`${text}\n`);
  const all = call.flags["show-all-ips"];
  const problem = (text: string) => {
    if (all || call.flags["show-problem-ips"]) say(`  ${text}`);
  };
  const tell: Telling = { say, problem, all };
  const state = await load(store, tell);
  const { records, users, handles } = state;
  const owners = Map.groupBy(users, (user) => user.address);
  const allocations = records.map((record) => ({
    ...record,
    owners: (owners.get(record.address) ?? []).map((user) => user.name),
  }));
  if (all)
    for (const { address, owners: names } of allocations)
      say(`  ${address} ${names.length > 0 ? `in use: ${names.join(", ")}` : "allocated"}`);
  const usage = compareUsage(records, users, state.pools);
  tellUsage(usage, tell);
  const nodes = new Set((await store.list({ kind: "Node" })).items.map((node) => node.metadata.name));
  const findings = findInconsistencies({ ...state, nodes });
  const leakedHandles = new Set(
    findings.flatMap((finding) => (finding.kind === "leaked-handle" ? [finding.handleId] : [])),
  );
  tellFindings(findings, { leaked: leakedHandles, matched: handles.length - leakedHandles.size }, tell);
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

async function load(store: OpenStore, { say }: Telling) {
  const { datastore } = store;
  say("Loading all IPAM blocks...");
  const blocks = (await datastore.list({ type: "block" })).items;
  const affinities = (await datastore.list({ type: "blockAffinity" })).items;
  const records = blocks.flatMap(({ value }) => allocationsIn(value));
  say(`Found ${blocks.length} IPAM blocks.`);
  for (const { value } of blocks) say(` IPAM block ${value.cidr} affinity=${value.affinity ?? "<none>"}:`);
  say(`IPAM blocks record ${records.length} allocations.\n`);

  say("Loading all IPAM pools...");
  const pools = activePools((await store.list({ kind: "IPPool" })).items);
  for (const pool of pools) say(`  ${pool}`);
  say(`Found ${pools.length} active IP pools.\n`);

  say("Loading all nodes.");
  const users = await readUsers(datastore);
  const [tunnels, workloads] = [users.filter((u) => u.kind === "tunnel"), users.filter((u) => u.kind === "workload")];
  say(`Found ${tunnels.length} node tunnel IPs.\n`);
  say("Loading all workload endpoints.");
  say(`Found ${workloads.length} workload IPs.`);
  say(`Workloads and nodes are using ${new Set(users.map((user) => user.address)).size} IPs.\n`);

  say("Loading all handles");
  const handles = (await datastore.list({ type: "ipamHandle" })).items;
  sayTopNodes(records, say);
  return { blocks, affinities, records, pools, users, handles };
}

function tellUsage({ leaked, outsidePools, unallocated, shared }: UsageFindings, { say, problem }: Telling): void {
  say("Scanning for IPs that are allocated but not actually in use...");
  for (const { address, handleId } of leaked) problem(`${address} leaked; handle ${handleId ?? "<none>"}`);
  say(`Found ${leaked.length} IPs that are allocated in IPAM but not actually in use.`);
  say("Scanning for IPs that are in use by a workload or node but not allocated in IPAM...");
  for (const { address, name } of outsidePools) problem(`${address} in use by ${name}, not in active IP pools`);
  say(`Found ${outsidePools.length} in-use IPs that are not in active IP pools.`);
  for (const { address, name } of unallocated) problem(`${address} in use by ${name}, not allocated`);
  say(`Found ${unallocated.length} in-use IPs that are in active IP pools but have no corresponding IPAM allocation.`);
  for (const { address, users } of shared)
    say(`  ${address} has ${users.length} owners: ${users.map((user) => user.name).join(", ")}`);
  if (shared.length > 0) say(`Found ${shared.length} IPs that several workloads or nodes use.`);
  say("");
}

function tellFindings(
  findings: readonly Finding[],
  handles: { readonly leaked: ReadonlySet<string>; readonly matched: number },
  { say, problem }: Telling,
): void {
  say("Scanning for IPAM handles with no matching IPs...");
  for (const id of handles.leaked) problem(`${id} doesn't have any active IPs`);
  say(`Found ${handles.leaked.size} handles with no matching IPs (and ${handles.matched} handles with matches).`);
  say("Scanning for IPs with missing handle...");
  const missing = findings.filter((finding) => finding.kind === "missing-handle");
  say(`Found ${missing.length} handles mentioned in blocks with no matching handle resource.`);
  for (const finding of findings) if (finding.kind !== "leaked-handle") say(`  ${describeFinding(finding)}`);
}

function activePools(pools: readonly Resource[]): readonly Cidr[] {
  return pools.flatMap((resource) => {
    const pool = readPool(resource, ignoreUnreadable);
    return pool === undefined || pool.isDisabled ? [] : [pool.cidr];
  });
}

function sayTopNodes(records: readonly AllocationRecord[], say: (text: string) => void): void {
  say(`Looking for top (up to ${TOP}) nodes by allocations...`);
  const counts = new Map<string, number>();
  for (const { attributes } of records) {
    const node = attributes["node"];
    if (node !== undefined) counts.set(node, (counts.get(node) ?? 0) + 1);
  }
  const sorted = [...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
  for (const [node, count] of sorted.slice(0, TOP)) say(`  ${node} has ${count} allocations`);
  const most = sorted[0]?.[1];
  if (most !== undefined)
    say(`Node with most allocations has ${most}; median is ${sorted[sorted.length >> 1]?.[1] ?? 0}`);
  say("");
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
  // Without the lock a pod may have got its address a moment ago and not yet said so.
  const old = checked.leaked.filter((record) => locked || ageMs(record) >= GRACE_MS);
  const young = checked.leaked.length - old.length;
  if (young > 0)
    io.out(
      `${young} leaked addresses are younger than ${GRACE_MS / 60_000} minutes or of unknown age and stay; with the datastore locked they are released too.\n`,
    );
  const work = old.length + checked.findings.length;
  if (work === 0) return FOUND;
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
  for (const finding of after) io.out(`  left: ${describeFinding(finding)}\n`);
  if (error !== undefined) io.err(`${error instanceof Error ? error.message : String(error)}\n`);
  const rest = checked.problems - released.length - before + after.length;
  return rest === 0 && error === undefined ? 0 : FOUND;
}

/** Since the allocation says it was made; 0 when it does not say. */
function ageMs({ attributes }: AllocationRecord): number {
  const [day, time] = (attributes["timestamp"] ?? "").split(" ");
  const made = Date.parse(`${day}T${(time ?? "").slice(0, 12)}Z`);
  return Number.isNaN(made) ? 0 : Date.now() - made;
}
