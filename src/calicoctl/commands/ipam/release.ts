// Implements `calicoctl ipam release`, which releases one address, or all that are leaked according to every given report of
// `ipam check`.
import { readFileSync } from "node:fs";
import { Conflict, NotFound } from "../../../datastore/index.ts";
import { Ipam, type ReleaseRequest } from "../../../ipam/index.ts";
import { BUILD } from "../../../lib/process/build.ts";
import type { IpAddress } from "../../../lib/ip/ip.ts";
import { type OpenStore, openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { releaseGrammar } from "../../table/ipam.ts";
import { UsageError } from "../../../lib/command-line/usage-error.ts";
import { Failure } from "../../command-line/failure.ts";
import { parseReport, type Report } from "../../ipam/report.ts";
import { clusterInformation, isLocked } from "../migrate/shared.ts";
import { parseIpFlag } from "./show.ts";
import { ignoreUnreadable, readClusterInformation } from "../../../model/index.ts";

export async function run(call: Call<typeof releaseGrammar>): Promise<number> {
  const text = call.flags.ip;
  const files = call.flags["from-report"];
  if (text !== undefined && files.length > 0) throw new UsageError("use --ip or --from-report, not both");
  if (text !== undefined) {
    const address = parseIpFlag(text);
    await using store = await openChecked(call);
    return await releaseOne(call, new Ipam({ datastore: store.datastore }), address);
  }
  if (files.length === 0) throw new UsageError("--ip or --from-report is required");
  const reports = files.map((file) => parseReport(file, readReport(file)));
  await using store = await openChecked(call);
  await checkReports(call, store, reports);
  return await releaseReported(call, store, reports);
}

async function releaseOne(call: Call<typeof releaseGrammar>, ipam: Ipam, address: IpAddress): Promise<number> {
  const { released, error } = await ipam.release([{ address }]);
  if (error !== undefined)
    throw new Failure(`Error: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  if (released.length === 0) throw new Failure(`IP address ${address} is not assigned`);
  call.io.out(`Successfully released IP address ${address}\n`);
  return 0;
}

function readReport(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new Failure(`failed to read report ${file}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Checks that the reports are of this cluster and, unless --force is set, that they are current and of this version. */
async function checkReports(
  call: Call<typeof releaseGrammar>,
  store: OpenStore,
  reports: readonly Report[],
): Promise<void> {
  const information = await clusterInformation(store);
  if (information === undefined) throw new NotFound("ClusterInformation(default)");
  const { clusterGuid } = readClusterInformation(information, ignoreUnreadable);
  const foreign = reports.find((report) => report.clusterGUID !== clusterGuid);
  if (foreign !== undefined)
    throw new Failure(
      `the report is of cluster ${foreign.clusterGUID}, but this is cluster ${clusterGuid ?? "without GUID"}`,
    );
  const objections: string[] = [];
  if (reports.some((report) => report.version !== BUILD.version))
    objections.push(`a report was written by another version than this program's ${BUILD.version}`);
  if (!isLocked(information))
    objections.push("the datastore is not locked: run `calicoctl datastore migrate lock` first");
  if (!reports.some((report) => report.clusterInformationRevision === information.metadata.resourceVersion))
    objections.push("the datastore has changed since the reports: write another one with `ipam check -o`");
  for (const reason of objections) {
    if (!call.flags.force) throw new Failure(`${reason}; or use --force`);
    call.io.err(`Warning: ${reason}; continuing because of --force\n`);
  }
}

async function releaseReported(
  call: Call<typeof releaseGrammar>,
  store: OpenStore,
  reports: readonly Report[],
): Promise<number> {
  const requests = leakedInAll(reports);
  const { io } = call;
  io.out(`Releasing ${requests.length} leaked IPs...\n`);
  const ipam = new Ipam({ datastore: store.datastore });
  let failed = 0;
  for (const request of requests) {
    const { error } = await ipam.release([request]);
    if (error !== undefined) failed++;
    io.out(error === undefined ? "." : "x");
  }
  const handles = await deleteHandles(store, reports, io.out);
  io.out(
    `\nReleased ${requests.length - failed} IPs, ${failed} were reallocated since the report; deleted ${handles.deleted} handles, ${handles.kept} had changed.\n`,
  );
  return failed + handles.kept === 0 ? 0 : 1;
}

/** Returns allocations that are neither in use nor in cooldown, and are identical in every report. */
function leakedInAll(reports: readonly Report[]): readonly ReleaseRequest[] {
  const [first, ...others] = reports;
  return [...(first?.allocations ?? [])].flatMap(([address, allocations]) =>
    allocations
      .filter(
        (allocation) =>
          !allocation.inUse &&
          !allocation.coolingDown &&
          others.every((report) =>
            report.allocations
              .get(address)
              ?.some(
                (other) =>
                  !other.inUse &&
                  !other.coolingDown &&
                  other.handle === allocation.handle &&
                  other.sequenceNumber === allocation.sequenceNumber,
              ),
          ),
      )
      .map(({ handle, sequenceNumber }) => ({
        address,
        ...(handle === "" ? {} : { handleId: handle }),
        sequenceNumber,
      })),
  );
}

/** Deletes the leaked handles, except those that were changed since the report. */
async function deleteHandles(store: OpenStore, reports: readonly Report[], out: (text: string) => void) {
  let [deleted, kept] = [0, 0];
  for (const { ID, UID, Revision } of reports[0]?.leakedHandles ?? []) {
    if (
      !reports.every((report) => report.leakedHandles.some((other) => other.ID === ID && other.Revision === Revision))
    )
      continue;
    try {
      const key = { type: "ipamHandle", handleId: ID } as const;
      await store.datastore.delete(key, { revision: Revision, uid: UID });
      deleted++;
      out(".");
    } catch (error) {
      if (!(error instanceof Conflict || error instanceof NotFound)) throw error;
      kept++;
      out("x");
    }
  }
  return { deleted, kept };
}
